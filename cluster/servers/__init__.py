"""Own servers: Postgres, RabbitMQ and Valkey as child processes, with their data below one folder.

Each is an async context manager with `start`, `stop`, `restart` and `kill`. Where the environment
names a server (`ODIN_POSTGRES_DSN`, `ODIN_AMQP_URL`, `ODIN_VALKEY_URL`), that one is used and never
touched. Nothing of the machine's own servers is read, changed or stopped.

    async with ServerSet(Path(".odin/servers"), os.environ) as servers:
        print(servers.postgres.url)
"""

from .common import ExternalServer, Process, Server, ServerError
from .group import ServerSet
from .postgres import PostgresServer, postgres_server
from .rabbitmq import RabbitmqServer, rabbitmq_server
from .valkey import ValkeyServer, valkey_server

__all__ = [
    "ExternalServer",
    "PostgresServer",
    "Process",
    "RabbitmqServer",
    "Server",
    "ServerError",
    "ServerSet",
    "ValkeyServer",
    "postgres_server",
    "rabbitmq_server",
    "valkey_server",
]
