"""`python -m engine`: one engine, configured by ODIN_* in the environment."""

from __future__ import annotations

from odin.runtime.service import run, serve
from odin.runtime.settings import load

from .lifetime import Engine
from .settings import EngineSettings


async def main() -> None:
    """Run an engine until it is told to stop."""
    settings = load(EngineSettings).checked()
    engine = Engine(settings)
    await serve({"engine": engine.run}, settings.drain_timeout)


if __name__ == "__main__":
    run(main, service="engine")
