"""The API of a live engine against its own document: schemathesis asks, the document judges."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation

from tests.engine.bed import Bed

EXAMPLES = 20
checks.load_all_checks()
JUDGES = checks.CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
    ]
)


# schemathesis draws from the `random` module inside strategies, which hypothesis deprecates.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
async def test_every_answer_fits_the_document_and_none_is_a_500(
    door: Bed, mode: GenerationMode
) -> None:
    await asyncio.to_thread(_explore, door.addresses[0], mode)


def _explore(address: str, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"{address}/v1/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    assert len(operations) > 10
    for operation in operations:
        has_input = bool(operation.body) or any(True for _ in operation.iter_parameters())
        if has_input or mode is GenerationMode.POSITIVE:
            _ask(operation, mode)


def _ask(operation: APIOperation[Any, Any, Any, Any], mode: GenerationMode) -> None:
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case[Any]) -> None:
        if operation.path.endswith("/wait") and "wait" not in (case.query or {}):
            case.query = {**(case.query or {}), "wait": 0}
        case.call_and_validate(
            checks=JUDGES,  # type: ignore[arg-type] # the registry knows classes too
            timeout=20,
        )

    ask()
