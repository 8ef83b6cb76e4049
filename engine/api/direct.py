"""The API's routes without the framework's layers, which cost more than what they lead to.

The same endpoints stand in the framework's router, which answers for everything else: what is not
found, what a path does not allow, the document, the links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI
from starlette.routing import compile_path

from odin.runtime.http import within_http_rules

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Receive, Scope, Send

_ENDPOINT: Final = "odin.endpoint"


class DirectApp(FastAPI):
    """A FastAPI application that serves some of its routes itself, inside odin's HTTP rules."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - whatever FastAPI takes
        """Take FastAPI's arguments."""
        super().__init__(**settings)
        self._whole: dict[tuple[str, str], ASGIApp] = {}
        self._patterns: dict[str, list[tuple[re.Pattern[str], ASGIApp]]] = {}
        self._within_rules: ASGIApp = _to_endpoint

    def serve_directly(
        self,
        routes: Iterable[tuple[str, str, ASGIApp]],
        *,
        token: str | None,
        body_bytes_max: int,
    ) -> None:
        """Serve routes that stand in the router too, in the same order.

        Args:
            routes: Method, path and endpoint of each.
            token: As for `install_http_rules`.
            body_bytes_max: As for `install_http_rules`.
        """
        self._within_rules = within_http_rules(
            _to_endpoint, token=token, body_bytes_max=body_bytes_max
        )
        for method, path, endpoint in routes:
            pattern, _, parameters = compile_path(path)
            if parameters:
                self._patterns.setdefault(method, []).append((pattern, endpoint))
            else:
                self._whole[method, path] = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or WebSocket."""
        if scope["type"] == "http" and not scope["root_path"] and self._finds(scope):
            await self._within_rules(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def _finds(self, scope: Scope) -> bool:
        method, path = scope["method"], scope["path"]
        endpoint = self._whole.get((method, path))
        if endpoint is not None:
            scope[_ENDPOINT], scope["path_params"] = endpoint, {}
            return True
        for pattern, endpoint in self._patterns.get(method, ()):
            if (found := pattern.match(path)) is not None:
                scope[_ENDPOINT], scope["path_params"] = endpoint, found.groupdict()
                return True
        return False


async def _to_endpoint(scope: Scope, receive: Receive, send: Send) -> None:
    await scope[_ENDPOINT](scope, receive, send)
