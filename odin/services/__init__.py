"""Where a built wheel puts the services; in a source tree they lie beside `odin`.

`odin.runtime.services` tells which of the two holds. An installed wheel has no top-level module but
`odin`, since an author's own `worker.py` must never clash with ours.
"""
