"""podman with a storage, networks and limits of its own: nothing of the machine's is touched.

Three things differ from a plain `podman run`, each for machines that are themselves confined: runc
instead of crun; limits no higher than this process may set (podman asks for a million files, which
takes CAP_SYS_RESOURCE); and no systemd timers for health checks, so that `podman healthcheck run`
stands in for them.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .running import Runner, SmokeError

FILES_MAX: Final = 65_536
PROCESSES_MAX: Final = 4_096
_LABEL: Final = "io.podman.compose.project"
_HELPERS: Final = ("/usr/libexec/podman", "/usr/lib/podman", "/usr/local/libexec/podman")
_NEEDED: Final = ("catatonit", "netavark", "aardvark-dns")


def settings_files(folder: Path) -> dict[str, str]:
    """Write podman's configuration below `folder` and return the variables that point there."""
    folder.mkdir(parents=True, exist_ok=True)
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, processes = resource.getrlimit(resource.RLIMIT_NPROC)
    files = FILES_MAX if files < 0 else min(files, FILES_MAX)
    processes = PROCESSES_MAX if processes < 0 else min(processes, PROCESSES_MAX)
    containers, storage = folder / "containers.conf", folder / "storage.conf"
    containers.write_text(
        "[containers]\n"
        f'default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]\n'
        "[engine]\n"
        'runtime = "runc"\n'
        'events_logger = "file"\n'
        "[network]\n"
        'network_backend = "netavark"\n'
        f'network_config_dir = "{folder / "networks"}"\n',
        encoding="utf-8",
    )
    storage.write_text(
        "[storage]\n"
        'driver = "overlay"\n'
        f'graphroot = "{folder / "storage"}"\n'
        f'runroot = "{folder / "run"}"\n',
        encoding="utf-8",
    )
    return {
        "CONTAINERS_CONF": str(containers),
        "CONTAINERS_STORAGE_CONF": str(storage),
        "DISABLE_HC_SYSTEMD": "true",
        "BUILDAH_FORMAT": "docker",
        "BUILDAH_ISOLATION": "chroot",
    }


def client_mounts() -> list[str]:
    """Return build options that lend the machine's pip settings and certificates to a build.

    They are mounted for the build's own commands and are in no layer.
    """
    paths = [Path("/etc/pip.conf"), Path("/etc/ssl/certs")]
    return [option for path in paths if path.exists() for option in ("-v", f"{path}:{path}:ro")]


@dataclass(frozen=True, slots=True)
class Podman:
    """The commands that the smoke test needs.

    Attributes:
        runner: Runs them.
        project: The name of the compose project; containers are called after it.
        compose: The words that begin a podman-compose command.
    """

    runner: Runner
    project: str
    compose: Sequence[str]

    async def has_image(self, name: str) -> bool:
        """Return whether an image is there already."""
        return (await self.runner.attempt("podman", "image", "exists", name, seconds=20)).code == 0

    async def build(
        self, file: Path, context: Path, tag: str, arguments: Mapping[str, str], seconds: float
    ) -> None:
        """Build an image."""
        given = [
            word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")
        ]
        await self.runner.run(
            *("podman", "build", "--isolation=chroot", "--format=docker", "--pull=never"),
            *(*client_mounts(), *given, "--file", str(file), "--tag", tag, str(context)),
            seconds=seconds,
        )

    async def up(self, *services: str, seconds: float = 120) -> None:
        """Start services; what they depend on is there already."""
        await self.runner.run(
            *self.compose, "up", "-d", "--no-build", "--no-deps", *services, seconds=seconds
        )

    def container(self, service: str) -> str:
        """Return the name of a service's container."""
        return f"{self.project}_{service}_1"

    async def exit_code(self, service: str, seconds: float) -> int:
        """Wait for a container that ends by itself and return its exit code."""
        return int(
            await self.runner.run("podman", "wait", self.container(service), seconds=seconds)
        )

    async def is_well(self, service: str) -> bool:
        """Return what the service's own health check says now."""
        name = self.container(service)
        ended = await self.runner.attempt("podman", "healthcheck", "run", name, seconds=40)
        return ended.code == 0

    async def logs(self, service: str, *options: str) -> str:
        """Return what a container has written."""
        name = self.container(service)
        return (await self.runner.attempt("podman", "logs", *options, name, seconds=20)).output

    async def inspect(self, service: str) -> dict[str, Any]:
        """Return what podman knows of a container."""
        found = await self.runner.run("podman", "inspect", self.container(service), seconds=20)
        described: dict[str, Any] = json.loads(found)[0]
        return described

    async def do(self, word: str, service: str, *options: str, seconds: float = 40) -> None:
        """Run `podman WORD` on a service's container: kill, start, exec, ..."""
        await self.runner.run("podman", word, self.container(service), *options, seconds=seconds)

    async def left(self) -> list[str]:
        """Return the names of all containers, volumes and networks of the project."""
        mine = f"label={_LABEL}={self.project}"
        found: list[str] = []
        for words in (
            ("ps", "--all", "--format", "{{.Names}}"),
            ("volume", "ls", "--format", "{{.Name}}"),
            ("network", "ls", "--format", "{{.Name}}"),
        ):
            output = await self.runner.run("podman", *words, "--filter", mine, seconds=20)
            found += [line for line in output.splitlines() if line.startswith(self.project)]
        return found

    async def remove_everything(self) -> None:
        """Take down the project, then whatever is left in this storage.

        Images stay as a cache; nameless ones, which each build leaves, for a day.

        Raises:
            SmokeError: something of the project is still there.
        """
        attempt = self.runner.attempt
        await attempt(*self.compose, "down", "--volumes", "--timeout", "5", seconds=120)
        await attempt("podman", "rm", "--all", "--force", "--time", "1", seconds=60)
        await attempt("podman", "volume", "prune", "--force", seconds=30)
        await attempt("podman", "network", "prune", "--force", seconds=30)
        await attempt("podman", "image", "prune", "--force", "--filter", "until=24h", seconds=60)
        if left := await self.left():
            raise SmokeError(f"still there: {', '.join(left)}")


def missing_programs() -> list[str]:
    """Return what has to be installed before anything can begin.

    podman finds some of its helpers in folders of its own, and does without them until it is too
    late: an init for containers, and their networks.
    """
    missing = [name for name in ("podman", "runc", "debootstrap") if shutil.which(name) is None]
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_HELPERS])
    return missing + [name for name in _NEEDED if shutil.which(name, path=path) is None]
