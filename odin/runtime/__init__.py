"""Shells that every service stands on: the only places that tell time, roll dice and do I/O.

The rules live in `odin.core` and take time, ids and randomness as arguments; what hands those in,
and what carries the decisions to Postgres, the broker, Valkey and HTTP, is here. Nothing in this
package knows a workflow from an activity.
"""
