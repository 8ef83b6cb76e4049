"""Workers: processes that run an author's workflows and activities.

    worker = Worker("127.0.0.1:7300", workflows=[order], activities=[charge], amqp_url=url)
    await worker.run()

Inside: `book` (tasks from message to attempt), `postbox` (what must be answered), `runs` (workflow
tasks), `attempts` (activities), `engines` (links and shards), `sources` (where tasks come from),
tied together by `desk`; `worker` is their life. Book and postbox do no I/O.
"""

from odin.worker.options import WorkerOptions
from odin.worker.telemetry import Tally, WorkerTelemetry
from odin.worker.worker import Worker

__all__ = ["Tally", "Worker", "WorkerOptions", "WorkerTelemetry"]
