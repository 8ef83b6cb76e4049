"""Where a local cluster keeps what: everything below one folder, `.odin` unless told otherwise."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odin.errors import FailedPreconditionError

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_FOLDER: Final = Path(".odin")
FOLDER_VARIABLE: Final = "ODIN_FOLDER"


class ClusterRunsError(FailedPreconditionError):
    """A cluster runs in this folder already."""

    reason = "CLUSTER_RUNS"


@dataclass(frozen=True, slots=True)
class Place:
    """The files of one local cluster."""

    folder: Path

    @classmethod
    def of(cls, folder: Path | None = None) -> Place:
        """Return the place at `folder`, else at ODIN_FOLDER, else `.odin` of this directory."""
        chosen = folder or Path(os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER)
        return cls(chosen.resolve())

    @property
    def state(self) -> Path:
        """What runs, for `odin ps` and the next `odin up`; holds no secret."""
        return self.folder / "cluster.json"

    @property
    def secrets(self) -> Path:
        """The servers' addresses with their passwords; only the owner may read it."""
        return self.folder / "cluster.secrets.json"

    @property
    def logs(self) -> Path:
        """One file per part."""
        return self.folder / "logs"

    @property
    def servers(self) -> Path:
        """The data of the servers."""
        return self.folder / "servers"

    @property
    def client_log(self) -> Path:
        """What the load saw of its calls."""
        return self.folder / "client-log.jsonl"

    def log_of(self, part: str) -> Path:
        """Return the log file of a part."""
        return self.logs / f"{part}.log"

    def prepare(self) -> None:
        """Make the folders, closed to other users."""
        for folder in (self.folder, self.logs, self.servers):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def begin_client_log(self) -> None:
        """Put the client log of an earlier load aside: each is judged by itself."""
        if self.client_log.exists():
            self.client_log.replace(self.client_log.with_suffix(".1.jsonl"))

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Own the place for the length of the block; the kernel frees it if this process dies.

        Raises:
            ClusterRunsError: another process owns it.
        """
        self.prepare()
        descriptor = os.open(self.folder / "cluster.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
                raise ClusterRunsError(
                    f"a cluster runs in {self.folder} already (supervisor pid {pid}): `odin ps` "
                    "shows it, `odin down` stops it"
                ) from None
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)
