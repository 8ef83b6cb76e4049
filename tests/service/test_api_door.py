"""The door of the API: no body, however wrong, gets further than a 400 or costs a 500."""

import io
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.api import create_app
from odin.core.payload import decode
from odin.core.requests import StartWorkflow
from tests.service.api_backend import MemoryBackend
from tests.service.api_server import serving

JSON = {"content-type": "application/json"}
GOOD = '"workflow_id":"o","workflow_type":"t"'


@pytest.fixture(scope="module")
async def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture(scope="module")
async def api(backend: MemoryBackend) -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(create_app(backend)) as url, aiohttp.ClientSession(url) as session:
        yield session


async def start(
    api: aiohttp.ClientSession, body: bytes | io.BytesIO
) -> tuple[int, dict[str, object]]:
    async with api.post("/v1/executions", data=body, headers=JSON) as response:
        return response.status, await response.json(content_type=None)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"workflow_id":"o"}',
        f"{{{GOOD},{GOOD}}}".encode(),
        f'{{{GOOD},"worfklow":1}}'.encode(),
        f'{{{GOOD},"input":{{}}}}'.encode(),
        f'{{{GOOD},"input":[NaN]}}'.encode(),
        f'{{{GOOD},"input":[1e400]}}'.encode(),
        f'{{{GOOD},"input":[123456789012345678901234567890]}}'.encode(),
        f'{{{GOOD},"input":["\\u0000"]}}'.encode(),
        f'{{{GOOD},"input":["\\ud800"]}}'.encode(),
        f'{{{GOOD},"input":[{{"a":1,"a":2}}]}}'.encode(),
        f'{{{GOOD},"input":[{"[" * 80}{"]" * 80}]}}'.encode(),
        f'{{{GOOD},"input":[{"[" * 100_000}{"]" * 100_000}]}}'.encode(),
        f'{{{GOOD},"input":{[0] * 65}}}'.encode(),
        f'{{{GOOD},"input":["{"x" * 262_144}"]}}'.encode(),
        f'{{{GOOD},"run_timeout":-1}}'.encode(),
        f'{{{GOOD},"run_timeout":1e300}}'.encode(),
        f'{{{GOOD},"task_timeout":0}}'.encode(),
        f'{{{GOOD},"id_reuse_policy":"never"}}'.encode(),
        f'{{{GOOD},"request_id":"a b"}}'.encode(),
        f'{{{GOOD},"task_queue":"a/b"}}'.encode(),
        f'{{{GOOD},"origin":"#"}}'.encode(),
        f'{{{GOOD},"memo":{{"a b":1}}}}'.encode(),
        f'{{{GOOD},"signal":{{"name":""}}}}'.encode(),
        f'{{{GOOD},"identity":"{"x" * 1_001}"}}'.encode(),
        b'{"workflow_id":"..","workflow_type":"t"}',
        b'{"workflow_id":"a\\n","workflow_type":"t"}',
    ],
    ids=lambda body: body[:40].decode("latin-1") + f"({len(body)})",
)
async def test_a_wrong_body_is_refused(
    api: aiohttp.ClientSession, backend: MemoryBackend, body: bytes
) -> None:
    before = len(backend.asked)
    status, answer = await start(api, body)
    assert (status, answer["code"]) == (400, "INVALID_ARGUMENT")
    assert answer["retryable"] is False
    assert len(backend.asked) == before


async def test_a_body_of_more_than_a_mebibyte_is_not_read(api: aiohttp.ClientSession) -> None:
    status, answer = await start(api, io.BytesIO(b" " * (1024 * 1024 + 1)))
    assert (status, answer["reason"]) == (413, "BODY_TOO_LARGE")


async def test_a_body_that_is_not_announced_as_json_is_refused(api: aiohttp.ClientSession) -> None:
    body = f"{{{GOOD}}}".encode()
    async with api.post(
        "/v1/executions", data=body, headers={"content-type": "text/plain"}
    ) as answer:
        assert answer.status == 400
        assert (await answer.json(content_type=None))["reason"] == "BAD_CONTENT_TYPE"


async def test_a_page_of_another_site_cannot_cancel(api: aiohttp.ClientSession) -> None:
    headers = {"origin": "http://elsewhere.example"}
    async with api.post("/v1/executions/o/cancel", headers=headers) as answer:
        assert answer.status == 403


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**65) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(VALUES, max_size=4))
async def test_what_gets_in_can_be_read_back_and_nothing_is_a_500(
    api: aiohttp.ClientSession, backend: MemoryBackend, values: list[object]
) -> None:
    body = {"workflow_id": f"w-{len(backend.asked)}", "workflow_type": "t", "input": values}
    try:
        data = json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        data = json.dumps(body).encode()
    status, answer = await start(api, data)
    assert status in (201, 400), answer
    if status == 201:
        request = backend.asked[-1]
        assert isinstance(request, StartWorkflow)
        assert [decode(one) for one in request.input] == values


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
async def test_any_bytes_are_answered_with_a_problem(
    api: aiohttp.ClientSession, body: bytes
) -> None:
    for path in ("/v1/executions", "/v1/executions/none/cancel", "/v1/executions/none/signals/go"):
        async with api.post(path, data=body, headers=JSON) as response:
            answer = await response.json(content_type=None)
            assert response.status in (400, 404), answer
            assert response.content_type == "application/problem+json"
