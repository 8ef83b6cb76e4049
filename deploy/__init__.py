"""What runs odin in containers, and what tries that out; never part of the wheel."""
