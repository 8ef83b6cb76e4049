"""Composes the API: routes over a backend, the rules of all odin APIs around them, the document."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route

import odin
from odin.core.payload import REQUEST_BYTES_MAX
from odin.runtime.http import install_http_rules

from .call import Endpoint
from .direct import DirectApp
from .openapi import document
from .reading import Reading
from .routes import routes
from .writing import Writing

if TYPE_CHECKING:
    from fastapi import FastAPI

    from .backend import Backend

TITLE: Final = "odin engine"


def create_app(
    backend: Backend,
    *,
    token: str | None = None,
    mount: Callable[[FastAPI], None] | None = None,
) -> FastAPI:
    """Return the engine's HTTP API.

    Args:
        backend: The engine behind it.
        token: What every request but those for health and readiness must bear, WebSockets too;
            None: nothing is asked.
        mount: Called with the app, to add further endpoints (the links).
    """
    app = DirectApp(
        title=TITLE,
        version=odin.__version__,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    counts: dict[tuple[str, int], int] = {}
    all_routes = routes(Writing(backend), Reading(backend, counts))
    direct: list[tuple[str, str, Endpoint]] = []
    for route in all_routes:
        known = frozenset(one.name for one in route.query)
        endpoint = Endpoint(route.name, route.handler, known, counts)
        app.router.routes.append(
            Route(route.path, endpoint, methods=[route.method], name=route.name)
        )
        direct.append((route.method, route.path, endpoint))
    described = document(all_routes, TITLE, odin.__version__)

    def openapi() -> dict[str, Any]:
        return described

    app.openapi = openapi  # type: ignore[method-assign] # how FastAPI is told of another document
    install_http_rules(app, token=token, body_bytes_max=REQUEST_BYTES_MAX)
    app.serve_directly(direct, token=token, body_bytes_max=REQUEST_BYTES_MAX)
    if mount is not None:
        mount(app)
    return app
