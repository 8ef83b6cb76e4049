"""`python -m engine`: one engine, configured by ODIN_* in the environment."""

from __future__ import annotations

from odin.runtime.service import run, serve
from odin.runtime.settings import load

from .lifetime import Engine
from .settings import EngineSettings
from .store import Store
from .store.steps import SteppingStore


async def main() -> None:
    """Run an engine until it is told to stop."""
    settings = load(EngineSettings).checked()
    engine = Engine(settings, store_type=SteppingStore if settings.debug_commit_steps else Store)
    await serve({"engine": engine.run}, settings.drain_timeout)


if __name__ == "__main__":
    run(main, service="engine")
