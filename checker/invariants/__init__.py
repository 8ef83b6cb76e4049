"""The rules over many rows, each in a module of its own: rows in, a finding out, nothing else.

A rule is a small accumulator: it is fed whole groups of rows (a shard's terms, everything about a
workflow id) in any order, and `finding()` says what they add up to. Rules do no I/O, tell no time
and roll no dice, and share no code with what wrote the rows.
"""
