"""Where the services live: beside `odin` in a source tree, below `odin.services` in a wheel.

An installed wheel puts no top-level module but `odin` into site-packages, since an author's own
`worker.py` must never clash with ours. Whoever starts a service by name, or reads the migrations,
therefore asks here.
"""

from importlib.util import find_spec
from pathlib import Path

NAMES = (
    "engine",
    "relay",
    "worker",
    "mocks",
    "chaos",
    "checker",
    "cluster",
    "dashboard",
    "bench",
)
"""The packages that move below `odin.services` when a wheel is built."""


def module_name(service: str, module: str = "") -> str:
    """Return the importable name of a service, or of one module of it.

    Args:
        service: one of `NAMES`.
        module: dotted name inside the service, empty for the package itself.

    Raises:
        ValueError: odin has no such service.
    """
    if service not in NAMES:
        raise ValueError(f"odin has no service {service!r}; it has {', '.join(NAMES)}")
    installed = f"{__name__}.{service}"
    package = installed if find_spec(installed) is not None else service
    return f"{package}.{module}" if module else package


def schema_folder() -> Path:
    """Return the folder with the migrations."""
    installed = Path(__file__).parent / "schema"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "schema"
