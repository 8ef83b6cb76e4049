"""The deterministic simulation: engines, relay, workers and clients in one process, on one seed.

loop.py, loop_parts.py  virtual time, a seeded order, simulated processes (kill, freeze)
clocks.py, ids.py       what a node is handed instead of the machine's clock and dice
forbidden.py            finds code that asks the machine behind the back of what it was handed
store/                  Postgres as a model: tables, row locks, transactions, faults
"""
