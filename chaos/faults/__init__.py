"""What can be broken: each fault is prepared, injected, seen to bite, and healed."""
