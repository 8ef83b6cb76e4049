"""The arithmetic of a node's lease, and which shards to take or to hand over. Pure.

A node holds one lease, renewed in the database by the database's clock. Of its own clock a node
trusts spans only (seconds of boottime, `float`), and counts them so that every error is on the safe
side:

    sent ────────────▶ the database stamps the reply ────────────▶ received
     │ a lease may be trusted from here: the database granted it later, so it ends later
     │                                                     the database's time is known from here:
     │                                                     it was stamped earlier, so now is later

Hence *serving* is counted from the send, and the *cluster's time* from the receipt. Instants of the
database are integer microseconds since 1970 (`_us`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import Self

from odin.errors import ConfigurationError

# Renewals that the estimate of the cluster's time looks back on: 15 s at the usual pace.
RENEWALS_KEPT = 5

_US_PER_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The three spans of a lease, in seconds. Each leaves room for the one before it to fail."""

    renew_every: float = 3.0
    serve_for: float = 8.0
    duration: float = 10.0

    def __post_init__(self) -> None:
        """Refuse spans out of order.

        Raises:
            ConfigurationError: one failed renewal would end the lease, or nothing is left between
                the end of serving and the end of the lease.
        """
        if not 0 < 2 * self.renew_every < self.serve_for < self.duration:
            raise ConfigurationError(
                "a lease needs 2 * renew_every < serve_for < duration, so that one failed renewal "
                "does no harm and serving ends before the lease does; got "
                f"{self.renew_every} s, {self.serve_for} s, {self.duration} s"
            )


@dataclass(frozen=True, slots=True)
class Renewal:
    """One renewal that succeeded.

    Attributes:
        sent_at: Boottime just before the request was sent.
        received_at: Boottime just after its reply arrived.
        database_time_us: The database's clock, stamped between the two.
    """

    sent_at: float
    received_at: float
    database_time_us: int

    @property
    def round_trip(self) -> float:
        """Seconds from send to receipt: the most that `cluster_time_us` can be behind."""
        return self.received_at - self.sent_at


@dataclass(frozen=True, slots=True)
class Lease:
    """What a node knows of its own lease from the renewals that succeeded, newest last.

    Every decision asks for the time and every answer for the lease, but both change only with a
    renewal: so what they need of the renewals is found once, when the lease is made.
    """

    times: LeaseTimes = LeaseTimes()
    renewals: tuple[Renewal, ...] = ()
    _sent_at: float = field(init=False, repr=False, compare=False)
    _fastest: Renewal | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Find the newest and the fastest renewal; of equally fast ones the newest."""
        sent_at = max((renewal.sent_at for renewal in self.renewals), default=-inf)
        fastest = min(reversed(self.renewals), key=lambda renewal: renewal.round_trip, default=None)
        object.__setattr__(self, "_sent_at", sent_at)
        object.__setattr__(self, "_fastest", fastest)

    def renewed(self, renewal: Renewal) -> Self:
        """Return the lease after one more successful renewal."""
        return replace(self, renewals=(*self.renewals, renewal)[-RENEWALS_KEPT:])

    @property
    def serving_until(self) -> float:
        """Boottime from which on nothing may be answered from memory; -inf without a renewal."""
        return self._sent_at + self.times.serve_for

    def may_serve(self, now: float) -> bool:
        """Return whether an answer from memory may leave at boottime `now`."""
        return now < self.serving_until

    def renew_at(self, now: float) -> float:
        """Return the boottime at which the next renewal is to be sent; `now` if none succeeded."""
        return max(now, self._sent_at + self.times.renew_every)

    def cluster_time_us(self, now: float) -> int:
        """Return a lower bound of the database's clock at boottime `now`.

        Nothing timed by it is early. It is behind by at most the round trip of the fastest renewal
        kept, which is why that one is taken.

        Raises:
            ValueError: no renewal has succeeded yet.
        """
        fastest = self._fastest
        if fastest is None:
            raise ValueError("the cluster's time is unknown before the first renewal")
        elapsed = max(0.0, now - fastest.received_at)
        return fastest.database_time_us + int(elapsed * _US_PER_SECOND)
