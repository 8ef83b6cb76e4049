"""What the proxy is told when it is started."""

from __future__ import annotations

from typing import Self

import msgspec
from pydantic import Field, SecretStr, model_validator

from odin.runtime.settings import Settings

from .faults import LinkName


class Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a link begins and ends.

    Attributes:
        part: Who connects.
        dependency: To whom.
        port: Where the proxy listens for it on loopback.
        host: Where the dependency is.
        target_port: Its port.
    """

    part: str
    dependency: str
    port: int
    host: str
    target_port: int

    @property
    def name(self) -> LinkName:
        """The link's name."""
        return LinkName(self.part, self.dependency)


class ProxySettings(Settings):
    """Read from ODIN_PROXY_*.

    Attributes:
        proxy_port: ODIN_PROXY_PORT, where it takes orders, on loopback.
        proxy_token: ODIN_PROXY_TOKEN, what lets somebody give them.
        proxy_links: ODIN_PROXY_LINKS, the links as JSON.
    """

    proxy_port: int = Field(ge=1, le=65_535)
    proxy_token: SecretStr
    proxy_links: str

    @property
    def wires(self) -> list[Wire]:
        """The links."""
        return msgspec.json.decode(self.proxy_links, type=list[Wire])

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        try:
            _ = self.wires
        except msgspec.MsgspecError as error:
            raise ValueError(f"ODIN_PROXY_LINKS cannot be read: {error}") from None
        return self
