"""The chaos service: plans, injects and heals faults."""
