"""The engine's HTTP API: `/v1/...`, JSON in and out, errors as problem+json.

The door (`call`) reads a request strictly and turns every error into one shape; handlers
(`writing`, `reading`) turn bodies into the core's requests and answers into views; the engine
behind it is a `Backend`. `routes` lists every route once, for serving and for the document alike.
"""

from .app import create_app
from .backend import Backend, ListFilter
from .describing import execution_view

__all__ = ["Backend", "ListFilter", "create_app", "execution_view"]
