"""The engine's HTTP API over real HTTP, in front of an engine in memory."""

from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest
from fastapi import FastAPI
from yarl import URL

from engine.api import create_app
from odin.core.events import from_history
from odin.core.payload import Payload
from odin.core.requests import Outcome, StartWorkflow, WaitWorkflow
from odin.errors import RequestMismatchError, ResourceExhaustedError
from tests.service.api_backend import MemoryBackend
from tests.service.api_server import serving

ONE = "/v1/executions/order-1"
TOKEN = "s3cret"  # noqa: S105 - of this test alone
RUN_ID = "018bcfe5-6801-726b-b2a7-4de452e6b438"


@pytest.fixture
async def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
async def api(backend: MemoryBackend) -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(create_app(backend)) as url, aiohttp.ClientSession(url) as session:
        yield session


async def post(
    api: aiohttp.ClientSession, path: str, body: bytes = b"", **headers: str
) -> tuple[int, dict[str, object], aiohttp.ClientResponse]:
    sent = {
        "content-type": "application/json",
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    async with api.post(path, data=body, headers=sent) as response:
        return response.status, await response.json(content_type=None), response


async def get(api: aiohttp.ClientSession, path: str) -> tuple[int, dict[str, object]]:
    async with api.get(path) as response:
        return response.status, await response.json(content_type=None)


async def start(api: aiohttp.ClientSession, workflow_id: str = "order-1", **more: object) -> str:
    body = msgspec.json.encode({"workflow_id": workflow_id, "workflow_type": "order", **more})
    status, answer, _ = await post(api, "/v1/executions", body)
    assert status == 201, answer
    return str(answer["run_id"])


async def test_a_start_keeps_the_exact_bytes_of_every_argument(
    api: aiohttp.ClientSession, backend: MemoryBackend
) -> None:
    body = b'{"workflow_id":"o","workflow_type":"order","input":[ 1.50 ,{"b" : 1e2,"a":0.1}, null]}'
    status, answer, _ = await post(api, "/v1/executions", body)
    request = backend.asked[0]
    assert isinstance(request, StartWorkflow)
    assert request.input == (
        Payload("json", b"1.50"),
        Payload("json", b'{"b" : 1e2,"a":0.1}'),
        Payload("json", b"null"),
    )
    assert (status, answer["started"]) == (201, True)


async def test_a_start_carries_durations_in_milliseconds_and_a_signal(
    api: aiohttp.ClientSession, backend: MemoryBackend
) -> None:
    await start(
        api,
        run_timeout=0.0001,
        execution_timeout=90,
        start_delay=1.5,
        signal={"name": "go", "input": [1]},
        memo={"note": "x"},
    )
    request = backend.asked[0]
    assert isinstance(request, StartWorkflow)
    assert (request.run_timeout_ms, request.execution_timeout_ms) == (1, 90_000)
    assert (request.start_delay_ms, request.task_timeout_ms) == (1_500, 10_000)
    assert (request.signal_name, request.signal_input) == ("go", (Payload("json", b"1"),))
    assert request.memo == {"note": Payload("json", b'"x"')}


async def test_the_request_id_is_the_bodys_else_the_headers_else_a_new_one(
    api: aiohttp.ClientSession, backend: MemoryBackend
) -> None:
    await start(api)
    tell = f"{ONE}/signals/go"
    await post(api, tell, b'{"request_id":"of-body"}', idempotency_key="of-header")
    await post(api, tell, b"{}", idempotency_key="of-header")
    await post(api, tell)
    await post(api, tell)
    ids = [getattr(one, "request_id", "") for one in backend.asked[1:]]
    assert ids[:2] == ["of-body", "of-header"]
    assert len(set(ids)) == 4


async def test_the_origin_comes_from_the_body_before_the_header(
    api: aiohttp.ClientSession, backend: MemoryBackend
) -> None:
    for origin in (b"", b',"origin":"synthetic"'):
        body = b'{"workflow_id":"o%d","workflow_type":"t"%s}' % (len(origin), origin)
        await post(api, "/v1/executions", body, x_odin_origin="visitors")
    assert [getattr(one, "origin", "") for one in backend.asked] == ["visitors", "synthetic"]


async def test_a_second_start_of_an_open_id_tells_the_run_in_the_way(
    api: aiohttp.ClientSession,
) -> None:
    run_id = await start(api)
    body = b'{"workflow_id":"order-1","workflow_type":"order"}'
    status, answer, response = await post(api, "/v1/executions", body)
    assert status == 409
    assert response.content_type == "application/problem+json"
    assert (answer["code"], answer["reason"]) == ("ALREADY_EXISTS", "ALREADY_STARTED")
    assert answer["details"] == {"run_id": run_id}
    assert answer["retryable"] is False


async def test_a_refusal_for_load_tells_when_to_come_back(
    api: aiohttp.ClientSession, backend: MemoryBackend
) -> None:
    backend.before = lambda _: ResourceExhaustedError("full", retry_after=1.2)
    body = b'{"workflow_id":"order-1","workflow_type":"order"}'
    status, answer, response = await post(api, "/v1/executions", body)
    assert (status, answer["code"], answer["retryable"]) == (429, "RESOURCE_EXHAUSTED", True)
    assert (response.headers["retry-after"], answer["retry_after_ms"]) == ("2", 1_200)


async def test_a_request_id_with_another_body_is_422(
    api: aiohttp.ClientSession, backend: MemoryBackend
) -> None:
    backend.before = lambda _: RequestMismatchError("another body")
    status, answer, _ = await post(api, f"{ONE}/cancel")
    assert (status, answer["reason"]) == (422, "REQUEST_MISMATCH")


async def test_a_wait_answers_still_running_and_then_the_exact_result(
    api: aiohttp.ClientSession, backend: MemoryBackend
) -> None:
    await start(api)
    status, answer = await get(api, f"{ONE}/wait?wait=0.01")
    assert (status, answer["status"]) == (200, "running")
    backend.runs["order-1"].close("completed", Payload("json", b'{"total":  1.10}'))
    async with api.get(f"{ONE}/wait") as response:
        assert b'"result":{"total":  1.10}' in await response.read()


async def test_a_wait_carries_run_id_and_seconds_to_the_engine(
    api: aiohttp.ClientSession, backend: MemoryBackend
) -> None:
    await start(api)
    await get(api, f"{ONE}/wait?wait=0.25&run_id={RUN_ID}")
    asked = backend.asked[-1]
    assert isinstance(asked, WaitWorkflow)
    assert (asked.run_id, asked.wait_ms) == (RUN_ID, 250)


async def test_msgpack_gives_outcome_and_history_as_they_are_stored(
    api: aiohttp.ClientSession, backend: MemoryBackend
) -> None:
    await start(api)
    backend.runs["order-1"].close("completed", Payload("zstd", b"\x00\xff"))
    accept = {"accept": "application/msgpack"}
    async with api.get(f"{ONE}/wait", headers=accept) as response:
        outcome = msgspec.msgpack.decode(await response.read(), type=Outcome)
    async with api.get(f"{ONE}/history", headers=accept) as response:
        run_id, events, following = msgspec.msgpack.decode(await response.read())
    assert outcome.result == Payload("zstd", b"\x00\xff")
    assert (run_id, len(events), following) == (outcome.run_id, 3, None)


async def test_a_history_comes_in_pages_in_both_orders(
    api: aiohttp.ClientSession, backend: MemoryBackend
) -> None:
    await start(api, input=[{"sku": "tea"}])
    for _ in range(3):
        await post(api, f"{ONE}/signals/go", b'{"input":["now"]}')
    seen: list[int] = []
    path: str | None = f"{ONE}/history?limit=2"
    while path:
        _, page = await get(api, path)
        events = msgspec.convert(page["events"], list[dict[str, object]])
        seen += [msgspec.convert(one["event_id"], int) for one in events]
        path = f"{ONE}/history?limit=2&after={page['next']}" if page["next"] else None
    _, newest = await get(api, f"{ONE}/history?limit=2&order=desc")
    assert seen == [1, 2, 3, 4, 5]
    assert newest["next"] == 4


async def test_a_history_shows_values_instants_and_seconds(
    api: aiohttp.ClientSession, backend: MemoryBackend
) -> None:
    await start(api, input=[{"sku": "tea"}])
    _, page = await get(api, f"{ONE}/history")
    first, second = msgspec.convert(page["events"], list[dict[str, object]])
    assert first["type"] == "workflow_execution_started"
    assert first["recorded_at"] == "2026-05-28T20:26:40.250000Z"
    attributes = msgspec.convert(first["attributes"], dict[str, object])
    assert (attributes["input"], attributes["task_timeout"]) == ([{"sku": "tea"}], 10.0)
    attributes = msgspec.convert(second["attributes"], dict[str, object])
    assert (attributes["start_to_close"], attributes["heartbeat"]) == (60.0, None)
    assert from_history(backend.runs["order-1"].events[1]) is not None


async def test_a_list_hands_its_conditions_to_the_engine(
    api: aiohttp.ClientSession, backend: MemoryBackend
) -> None:
    query = "status=running,failed&failed=true&workflow_type=order&workflow_id=or"
    status, _ = await get(api, f"/v1/executions?{query}&started_after=2026-01-01T00:00:00Z")
    (which,) = backend.filters
    assert (status, which.statuses, which.workflow_type) == (200, ("failed",), "order")
    assert (which.workflow_id_prefix, which.started_after_us) == ("or", 1_767_225_600_000_000)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/executions?stauts=running",
        "/v1/executions?status=sleeping",
        "/v1/executions?status=running&failed=true",
        "/v1/executions?limit=0",
        "/v1/executions?limit=1e3",
        "/v1/executions?limit=5&limit=6",
        "/v1/executions?cursor=",
        "/v1/executions?started_after=soon",
        "/v1/executions?started_after=0001-01-01T00:00:00%2B14:00",
        "/v1/executions?namespace=a%20b",
        "/v1/executions?%ff=1",
        f"{ONE}?run_id=1",
        f"{ONE}/wait?wait=nan",
        f"{ONE}/wait?wait=31",
        f"{ONE}/history?after=-1",
        f"{ONE}/history?order=up",
        "/v1/executions/caf%C3%A9",
        "/v1/cluster?x=1",
        "/v1/health?x=1",
    ],
)
async def test_what_a_route_does_not_know_is_refused(api: aiohttp.ClientSession, path: str) -> None:
    async with api.get(URL(path, encoded=True)) as response:
        answer = await response.json(content_type=None)
        assert (response.status, answer["code"]) == (400, "INVALID_ARGUMENT"), answer
        assert response.content_type == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/v1/nothing", 404, "NO_SUCH_ROUTE"),
        ("/v1/executions/a%2F..%2Fb", 404, "NO_SUCH_ROUTE"),
        ("/v1/executions/order-1/cancel", 405, "METHOD_NOT_ALLOWED"),
        ("/v1/executions/unknown", 404, "NOT_FOUND"),
    ],
)
async def test_what_is_not_there_is_a_problem_too(
    api: aiohttp.ClientSession, path: str, status: int, reason: str
) -> None:
    async with api.get(URL(path, encoded=True)) as response:
        answer = await response.json(content_type=None)
        assert (response.status, answer["reason"]) == (status, reason)
        assert response.content_type == "application/problem+json"


async def test_the_token_guards_all_but_health_and_readiness(backend: MemoryBackend) -> None:
    app = create_app(backend, token=TOKEN)
    async with serving(app) as url, aiohttp.ClientSession(url) as api:
        statuses = {
            path: (await get(api, f"/v1/{path}"))[0] for path in ("health", "ready", "shards")
        }
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with api.get("/v1/shards", headers=headers) as response:
            assert response.status == 200
        async with api.get(
            "/v1/shards", headers={"authorization": f"Bearer {TOKEN[:-1]}"}
        ) as response:
            assert response.status == 401
    assert statuses == {"health": 200, "ready": 200, "shards": 401}


async def test_a_node_that_is_not_ready_says_so_and_lives(
    api: aiohttp.ClientSession, backend: MemoryBackend
) -> None:
    backend.is_ready = False
    async with api.get("/v1/ready") as response:
        answer = await response.json()
        assert (response.status, answer["ok"]) == (503, False)
        assert response.headers["retry-after"] == "1"
    assert await get(api, "/v1/health") == (200, {"ok": True})


async def test_metrics_are_in_the_text_format(api: aiohttp.ClientSession) -> None:
    await start(api)
    async with api.get("/v1/metrics") as response:
        lines = (await response.text()).splitlines()
    assert 'odin_shard_owned{node="e\\"1"} 4' in lines
    assert 'odin_api_requests_total{route="start",status="201"} 1' in lines
    assert lines.count("# TYPE odin_api_requests_total counter") == 1


async def test_a_mounted_endpoint_is_served(backend: MemoryBackend) -> None:
    def mount(app: FastAPI) -> None:
        @app.get("/v1/links/here")
        async def here() -> dict[str, bool]:
            return {"here": True}

    async with serving(create_app(backend, mount=mount)) as url, aiohttp.ClientSession(url) as api:
        assert await get(api, "/v1/links/here") == (200, {"here": True})


async def test_the_document_describes_every_route_with_its_problems(
    api: aiohttp.ClientSession,
) -> None:
    _, document = await get(api, "/v1/openapi.json")
    paths = msgspec.convert(document["paths"], dict[str, dict[str, dict[str, object]]])
    operations = {f"{verb} {path}" for path, verbs in paths.items() for verb in verbs}
    assert len(operations) == 15
    references = set(_references(document))
    schemas = msgspec.convert(document["components"], dict[str, dict[str, object]])["schemas"]
    assert references <= {f"#/components/schemas/{name}" for name in schemas}
    start_route = paths["/v1/executions"]["post"]
    assert "requestBody" in start_route
    assert {"201", "409", "422", "429", "503"} <= set(
        msgspec.convert(start_route["responses"], dict[str, object])
    )


def _references(part: object) -> list[str]:
    if isinstance(part, dict):
        own = [part["$ref"]] if isinstance(part.get("$ref"), str) else []
        return own + [found for one in part.values() for found in _references(one)]
    if isinstance(part, list):
        return [found for one in part for found in _references(one)]
    return []
