"""Row locks: shared or exclusive, held to the end of a transaction, waited for in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .server import Backend
    from .statements import Lock


@dataclass(slots=True)
class _Waiting:
    backend: Backend
    lock: Lock
    granted: Callable[[], None]


@dataclass(slots=True)
class _Held:
    holders: dict[Backend, bool] = field(default_factory=dict)
    waiting: list[_Waiting] = field(default_factory=list)

    def admits(self, backend: Backend, *, exclusive: bool) -> bool:
        """Return whether the lock is compatible with those of the others.

        Only holders count, not who waits: in Postgres too a shared lock passes a waiting update.
        """
        return all(
            holder is backend or not (exclusive or held) for holder, held in self.holders.items()
        )


class Locks:
    """Who holds what, and who waits for it."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, _Held] = {}

    def take(self, backend: Backend, lock: Lock, granted: Callable[[], None]) -> bool:
        """Take the lock now and return True, or call `granted` later and return False.

        `granted` must not take or release anything itself.
        """
        row = self._rows.get(lock.key)
        if row is None:
            self._rows[lock.key] = _Held({backend: lock.exclusive})
            return True
        if row.admits(backend, exclusive=lock.exclusive):
            row.holders[backend] = row.holders.get(backend, False) or lock.exclusive
            return True
        row.waiting.append(_Waiting(backend, lock, granted))
        return False

    def is_free(self, backend: Backend, lock: Lock) -> bool:
        """Return whether the lock could be taken now."""
        row = self._rows.get(lock.key)
        return row is None or row.admits(backend, exclusive=lock.exclusive)

    def release(self, backend: Backend, keys: set[Hashable]) -> None:
        """Give up the locks `keys`, held or waited for; others get their turn."""
        for key in sorted(keys, key=repr) if len(keys) > 1 else keys:
            row = self._rows.get(key)
            if row is None:
                continue
            row.holders.pop(backend, None)
            row.waiting = [one for one in row.waiting if one.backend is not backend]
            while row.waiting and row.admits(
                row.waiting[0].backend, exclusive=row.waiting[0].lock.exclusive
            ):
                first = row.waiting.pop(0)
                is_exclusive = row.holders.get(first.backend, False) or first.lock.exclusive
                row.holders[first.backend] = is_exclusive
                first.granted()
            if not row.holders and not row.waiting:
                del self._rows[key]

    def blocking(self, backend: Backend) -> list[Backend]:
        """Return whom the backend waits for."""
        found: dict[Backend, None] = {}
        for row in self._rows.values():
            for waiting in row.waiting:
                if waiting.backend is backend:
                    found.update(
                        (holder, None)
                        for holder, held in row.holders.items()
                        if holder is not backend and (held or waiting.lock.exclusive)
                    )
        return list(found)
