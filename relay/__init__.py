"""The relay: outbox rows on their way to workers. It runs inside each engine, for its own shards.

    group committed ──▶ Publisher.offer ──▶ Departure (one per queue) ──▶ Transport ──▶ broker, link
                             ▲                    ▲    │ confirmed ──▶ the row is deleted
    term begins, every 10 s: Sweeper              └────┘ not: delayed, 1 s doubling to 60 s

Postgres is the truth and the relay's memory a copy of a part of it: a row that the relay has not
room for, forgets, or publishes twice costs time and never a task. Rows belong to a term; what
comes back for a term that is over is ignored. The engine hands in what the relay needs.
"""
