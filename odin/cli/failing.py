"""Errors for people: what happened, why, and what to do next; and the exit code that says so."""

from __future__ import annotations

import json
import sys
from typing import Final

from odin.errors import Code, ConfigurationError, OdinError

EXIT_RUN_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3
EXIT_REFUSED: Final = 4
EXIT_CHECK_FAILED: Final = 5

_WHAT: Final = {
    "UNREACHABLE": "no engine could be reached",
    "OUTCOME_UNKNOWN": "whether it happened is not known",
    "ALREADY_STARTED": "a run of this id is in the way",
    "NOT_FOUND": "there is no such thing",
    "RUN_CLOSED": "the run is closed",
    "UNAUTHENTICATED": "the cluster wants a token",
    "RESOURCE_EXHAUSTED": "the cluster takes no more now",
    "SHARD_MOVING": "the run's shard has no owner just now",
    "STORE_FULL": "the database's disk is full; nothing was changed",
    "STORE_UNAVAILABLE": "the database does not answer, or takes nothing; nothing was changed",
    "WORKFLOW_FAILED": "the run failed",
    "BAD_ID": "that is not an id",
    "INVALID_ARGUMENT": "the command is not right as it stands",
    "BAD_PAYLOAD": "the value cannot be kept exactly",
    "BAD_CONFIGURATION": "this installation cannot do that",
    "BAD_DEFINITION": "a workflow or activity is declared wrongly",
    "MODULE_NOT_FOUND": "there is no such module or object",
    "MODULE_FAILED": "the module cannot be imported",
}
_NEXT: Final = {
    "UNREACHABLE": "start one with `odin dev` or `odin up`, or name one with --address",
    "INVALID_ARGUMENT": "`odin COMMAND --help` shows how it is called",
    "OUTCOME_UNKNOWN": "look with `odin show ID`, or repeat the command with the same --request-id",
    "ALREADY_STARTED": "look with `odin show ID`; take another --id, or --on-conflict use_existing",
    "NOT_FOUND": "`odin list` shows what there is",
    "RUN_CLOSED": "`odin show ID` tells how it ended",
    "UNAUTHENTICATED": "give it with --api-key or ODIN_API_KEY",
    "RESOURCE_EXHAUSTED": "try again in a moment; `odin cluster` shows how it stands",
    "SHARD_MOVING": "try again in a moment; `odin shards` shows who owns what",
    "STORE_FULL": "free space on the disk of Postgres, then repeat the command",
    "STORE_UNAVAILABLE": "see that Postgres runs; `/v1/ready` of an engine tells the cause",
    "WORKFLOW_FAILED": "`odin history ID --full` shows every step",
}
_USAGE: Final = frozenset({Code.INVALID_ARGUMENT})
_UNREACHABLE: Final = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED})


# What only the extra `server` brings: an author's own missing package is another matter.
_OF_SERVER: Final = frozenset(
    ["asyncpg", "fastapi", "pydantic", "pydantic_settings", "starlette", "uvicorn", "valkey"]
)


def of_missing_extra(error: ModuleNotFoundError) -> ConfigurationError | None:
    """Return what to tell about a package that this command needs and that is not installed."""
    name = (error.name or "").partition(".")[0]
    if name not in _OF_SERVER:
        return None
    return ConfigurationError(
        f"this command runs servers, and the package {name!r} for that is not installed:"
        " pip install 'odin-workflows[server,dev]'"
    )


def exit_code_of(error: OdinError) -> int:
    """Return the exit code that stands for `error`."""
    if error.reason == "WORKFLOW_FAILED":
        return EXIT_RUN_FAILED
    if error.code in _UNREACHABLE:
        return EXIT_UNREACHABLE
    return EXIT_USAGE if error.code in _USAGE else EXIT_REFUSED


def report(error: OdinError, *, as_json: bool) -> int:
    """Write `error` to stderr and return its exit code."""
    code = exit_code_of(error)
    following = _NEXT.get(error.reason)
    if as_json:
        told = {
            "error": str(error),
            "code": error.code.name,
            "reason": error.reason,
            "details": error.details,
            "next": following,
        }
        sys.stderr.write(json.dumps(told, default=str) + "\n")
        return code
    sys.stderr.write(f"error: {_WHAT.get(error.reason, 'that did not work')}\n")
    sys.stderr.write(f"  why: {error} ({error.reason})\n")
    if error.details.get("run_id"):
        sys.stderr.write(f"  run: {error.details['run_id']}\n")
    if following:
        sys.stderr.write(f"  next: {following}\n")
    return code
