"""The checker: reads the evidence and judges the invariants."""
