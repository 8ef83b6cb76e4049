"""The pure core: values in, values out.

No I/O, no clock, no dice; time, ids and randomness are arguments.
"""
