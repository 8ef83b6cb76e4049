"""`python -m worker`: one process that runs the demo's workflows and activities."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from odin.runtime.service import run, serve
from odin.runtime.settings import load
from odin.runtime.telemetry import Telemetry
from odin.worker import Worker

from .bench import bench_fan, bench_steps, echo
from .orders import Order
from .settings import WorkerSettings
from .shop import Addresses, Shop, open_session
from .subscription import subscription

GRACE_TIMEOUT: Final = timedelta(seconds=1)
DRAIN_TIMEOUT: Final = timedelta(seconds=4)


async def main() -> None:
    """Run the worker until told to stop.

    Raises:
        ConfigurationError: a setting is missing or wrong.
    """
    settings = load(WorkerSettings)
    routes = settings.routes
    telemetry = Telemetry(settings.valkey, "worker", settings.worker_id)
    addresses = Addresses(settings.payments_url, settings.shipping_url, settings.drivers_url)
    try:
        async with open_session() as session:
            worker = Worker(
                settings.engine_addresses,
                workflows=[Order, subscription, bench_steps, bench_fan],
                activities=[*Shop(session, addresses).all_activities(), echo],
                telemetry=telemetry,
                task_queue=settings.task_queue,
                identity=settings.worker_id,
                broker=settings.broker.value,
                amqp_url=settings.url or None,
                max_concurrent_activities=settings.worker_slots,
                graceful_shutdown_timeout=GRACE_TIMEOUT,
                route=lambda advertised: routes.get(advertised, advertised),
                token=settings.api_token.get_secret_value() if settings.api_token else None,
            )
            await serve({"worker": worker.run, "telemetry": telemetry.run}, DRAIN_TIMEOUT)
    finally:
        await telemetry.close()


if __name__ == "__main__":
    run(main, service="worker")
