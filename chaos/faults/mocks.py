"""A mock service misbehaves, as its admin route lets it be told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .base import Bite
from .processes import MARGIN_SECONDS
from .undo import BEHAVE, Undo, tell_mock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .stage import Stage

CHARGE: Final = "/charge"
LOOK_SECONDS: Final = 0.25
SEED_MAX: Final = 2**31


class Misbehave:
    """One way to misbehave, at the charging of cards; the mock ends it by itself too."""

    inject_seconds = 10.0
    verify_seconds = 15.0

    def __init__(self, stage: Stage, kind: str, **fields: Any) -> None:  # noqa: ANN401 - the fields of the mock's request
        self._stage = stage
        self._kind = kind
        self._fields = fields
        self._address = ""
        self._seed = 0

    @property
    def target(self) -> str:
        """Whom it strikes."""
        return "payments"

    async def prepare(self) -> Sequence[Undo]:
        """Find it; "none" undoes everything."""
        self._address = self._stage.part("payments").address
        self._seed = self._stage.dice.draw(
            f"seed of {self._kind}", lambda dice: dice.randrange(2**31)
        )
        return [Undo(kind="mock", address=self._address)]

    async def inject(self) -> None:
        """Tell it to misbehave."""
        seconds = self._stage.seconds + self.verify_seconds + MARGIN_SECONDS
        await self._tell(
            {
                "kind": self._kind,
                "for_seconds": seconds,
                "seed": self._seed,
                "paths": [CHARGE],
                **self._fields,
            }
        )

    async def verify(self) -> Bite:
        """See that a call has met it."""
        ends = self._stage.clock.boottime() + self.verify_seconds
        hits = 0
        while not hits and self._stage.clock.boottime() < ends:
            await self._stage.clock.sleep(LOOK_SECONDS)
            shown = await self._tell(None)
            hits = sum(int(str(one["hit_count"])) for one in shown if one["kind"] == self._kind)
        return Bite(hits > 0, {"calls that met it": hits})

    async def heal(self) -> None:
        """Tell it to behave."""
        await self._tell(BEHAVE)

    async def _tell(self, body: object) -> list[dict[str, object]]:
        token = self._stage.levers.secrets().mock_admin_token
        return await tell_mock(self._address, token, body)
