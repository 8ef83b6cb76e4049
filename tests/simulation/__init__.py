"""The deterministic simulation: engines, relay, workers and clients in one process, on one seed.

    loop.py, loop_parts.py  virtual time, a seeded order, simulated processes (kill, freeze)
    clocks.py, ids.py       what a node is handed instead of the machine's clock and dice
    forbidden.py            finds code that asks the machine behind the back of what it was handed
    store/                  Postgres as a model: tables, row locks, transactions, faults
    network.py, broker.py   links, HTTP and queues between simulated processes
    world.py, nodes.py, seams.py   a cluster of real engines and workers on all of the above
    workload.py, auditor.py        what clients ask, and the judgement of what came of it

One `SimLoop(seed)` carries everything; each part draws from `loop.dice_for(name)`. Code of a node
runs inside its `Process`; what reaches it from outside (an answer, a message) resolves a future
that it awaits, or goes through `Process.call_soon`. Whatever must be repeatable is told to
`loop.note`, so that `loop.trace_hash` compares two runs whole. `SimDatabase(loop)` is the one
Postgres:

    store_type = database.store_type("host")     # Engine(settings, clock=, ids=, store_type=)
    database.odds = Odds(cut=0.05, late=0.02)    # what befalls calls from now on
    database.plan = lambda call: Fault.CUT if call.name == "commit_group" else None
    heal = database.trouble(dice)[1]             # a bad day of some kind, until heal()
    database.tables.event                        # what has committed
"""
