"""The relay: carries outbox rows to the broker and sweeps what was not confirmed."""
