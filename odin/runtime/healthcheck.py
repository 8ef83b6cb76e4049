"""Tells by its exit code whether a service is well; containers ask it in place of curl.

    python -m odin.runtime.healthcheck [--holds TEXT] [--within SECONDS] URL...

One of the URLs is enough. An `http` or `https` one must answer 2xx, with TEXT in its body if that
is given; ODIN_API_TOKEN is sent along if it is set. A `file` one must have been written to in the
last SECONDS. So a process that listens nowhere is asked for where it leaves a trace: a worker in
the lists of the engines, the load in its log.
"""

from __future__ import annotations

import argparse
import http.client
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from odin.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odin.runtime.clock import Clock

ANSWER_SECONDS: Final = 3.0
BODY_BYTES_MAX: Final = 1024 * 1024
_TOKEN_VARIABLE: Final = "ODIN_API_TOKEN"  # noqa: S105 - the name of a variable, not a token


def fault_of(
    url: str,
    *,
    holds: str = "",
    within_seconds: float = 60.0,
    token: str = "",
    clock: Clock | None = None,
) -> str:
    """Return why what stands behind `url` is not well; empty if it is.

    Args:
        url: An `http`, `https` or `file` URL.
        holds: A text that the body of an answer must hold.
        within_seconds: How long ago a file may have been written to.
        token: A bearer token to send along.
        clock: Tells how old a file is.
    """
    parts = urlsplit(url)
    try:
        match parts.scheme:
            case "http" | "https":
                return _fault_of_answer(url, holds, token)
            case "file":
                now = (clock or SystemClock()).wall().timestamp()
                age = now - Path(unquote(parts.path)).stat().st_mtime
                return f"written to {age:.0f} s ago" if age > within_seconds else ""
            case _:
                return "not an http, https or file URL"
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"


def _fault_of_answer(url: str, holds: str, token: str) -> str:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    make = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = make(parts.hostname or "", parts.port, timeout=ANSWER_SECONDS)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", target, headers=headers)
        answer = connection.getresponse()
        body = answer.read(BODY_BYTES_MAX).decode("utf-8", "replace")
    finally:
        connection.close()
    if not http.HTTPStatus.OK <= answer.status < http.HTTPStatus.MULTIPLE_CHOICES:
        return f"answered {answer.status}"
    return f"answered without {holds!r}" if holds not in body else ""


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Ask one URL after another; 0 as soon as one is well, 1 if none is."""
    parser = argparse.ArgumentParser(prog="healthcheck", description="0: well, 1: not")
    parser.add_argument("urls", metavar="URL", nargs="+")
    parser.add_argument("--holds", default="", metavar="TEXT")
    parser.add_argument("--within", default=60.0, type=float, metavar="SECONDS")
    given = parser.parse_args(arguments)
    token = environ.get(_TOKEN_VARIABLE, "")
    for url in given.urls:
        fault = fault_of(url, holds=given.holds, within_seconds=given.within, token=token)
        if not fault:
            return 0
        sys.stderr.write(f"{url}: {fault}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
