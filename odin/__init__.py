"""odin: durable workflows as ordinary `async` Python functions.

An author imports `odin.workflow`, `odin.activity`, `odin.client` and `odin.worker`. Everything
below `odin.core` is pure; what is below `odin.runtime` is the shell that services stand on.
"""

__version__ = "0.1.0"
