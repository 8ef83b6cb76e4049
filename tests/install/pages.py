"""Executes the code blocks of a page of the documentation, as a reader would.

A Python block is written to the file that its first line names. Of a console block each line that
begins with `$` is run: `odin dev` and `odin worker` go on until the page has ended.
"""

import json
import re
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from .support import ROOT, Installed, Running

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_READY = {"dev": "is ready", "worker": "linked to engine"}
CLIENT_ADDRESS = "127.0.0.1:7300"


def blocks(page: str) -> list[tuple[str, str]]:
    """Return language and text of each code block."""
    return _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def commands(text: str) -> list[list[str]]:
    """Return the commands of a console block."""
    lines = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    return [shlex.split(line, comments=True) for line in lines]


class Reader:
    """Somebody who does what a page says.

    Args:
        installed: Where odin is installed.
        folder: The reader's folder.
        prepare: Is given the commands that set up the machine and not odin: pip, venv, make.
    """

    def __init__(
        self, installed: Installed, folder: Path, prepare: Callable[[list[str]], None]
    ) -> None:
        self._installed = installed
        self._folder = folder
        self._prepare = prepare
        self._going: list[Running] = []
        self.outputs: dict[str, str] = {}

    def follow(self, page: str) -> None:
        """Execute every block of the page."""
        with ExitStack() as stack:
            for language, text in blocks(page):
                if language == "python":
                    self._write(text)
                else:
                    assert language == "console", f"nobody knows how to execute {language}"
                    for command in commands(text):
                        self._do(command, stack)

    def _write(self, text: str) -> None:
        name = text.splitlines()[0].removeprefix("# ")
        address = self._going[0].address if self._going else CLIENT_ADDRESS
        (self._folder / name).write_text(text.replace(CLIENT_ADDRESS, address))

    def _do(self, command: list[str], stack: ExitStack) -> None:
        if command[0] in {"pip", "make", "python3"}:
            self._prepare(command)
        elif command[0] == "odin" and command[1] in _READY:
            going = Running(self._installed, self._folder, *command[1:])
            stack.enter_context(going)
            self._going.append(going)
            going.says(_READY[command[1]])
        else:
            command = [self._newest() if word == "ORDER_ID" else word for word in command]
            ended = self._installed.run(*command, cwd=self._folder)
            assert ended.returncode == 0, f"{shlex.join(command)}: {ended.stderr}"
            self.outputs[shlex.join(command)] = ended.stdout

    def _newest(self) -> str:
        listed = self._installed.odin("list", "--json", cwd=self._folder).stdout
        return str(json.loads(listed)[0]["workflow_id"])
