"""`odin version`."""

from __future__ import annotations

import platform

import odin
from odin.cli.output import write, write_json
from odin.cli.shared import current


def version() -> int:
    """Print the version of odin and of Python."""
    if current().as_json:
        write_json({"odin": odin.__version__, "python": platform.python_version()})
    else:
        write(f"odin {odin.__version__} (Python {platform.python_version()})")
    return 0
