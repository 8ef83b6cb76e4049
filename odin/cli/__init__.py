"""The command line: `odin run`, `odin list`, `odin history`, ...

Only the command that is asked for is imported, with what it needs; the others are known by name and
one line of help. Data goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and leave the process.

    Exit codes: 0 done, 1 the run failed, 2 wrong usage, 3 no engine was reached, 4 refused, 5 a
    check failed.

    Args:
        arguments: Those after the program's name; sys.argv's when None.
    """
    from odin.cli.program import program  # noqa: PLC0415 - importing this package must cost nothing

    given = sys.argv[1:] if arguments is None else arguments
    program(given)(given, prog_name="odin")
    sys.exit(0)
