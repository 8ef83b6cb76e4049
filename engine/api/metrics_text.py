"""The text format of Prometheus, written by hand: a handful of lines need no library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .views import MetricView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_REQUESTS: Final = "odin_api_requests_total"


def render(samples: Iterable[MetricView], counts: Mapping[tuple[str, int], int]) -> bytes:
    """Return the samples and the API's own request counts.

    Args:
        samples: Those of one name stand together.
        counts: Requests answered, by route and status.
    """
    lines: list[str] = []
    latest = ""
    for sample in [*samples, *_own(counts)]:
        if sample.name != latest:
            if sample.help:
                lines.append(f"# HELP {sample.name} {_escape_help(sample.help)}")
            lines.append(f"# TYPE {sample.name} {sample.kind}")
            latest = sample.name
        lines.append(f"{sample.name}{_labels(sample.labels)} {_number(sample.value)}")
    return ("\n".join(lines) + "\n").encode()


def _own(counts: Mapping[tuple[str, int], int]) -> list[MetricView]:
    return [
        MetricView(
            name=_REQUESTS,
            value=count,
            labels={"route": route, "status": str(status)},
            kind="counter",
            help="Requests answered by the HTTP API.",
        )
        for (route, status), count in sorted(counts.items())
    ]


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escape(value)}"' for key, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escape_help(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    return (
        str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))
    )
