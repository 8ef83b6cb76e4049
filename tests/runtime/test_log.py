from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from odin.runtime.log import JsonFormatter, PrettyFormatter, setup_logging, work, working_on
from odin.runtime.redaction import redact


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    out = io.StringIO()
    setup_logging("engine", "engine-1", stream=out)
    yield out
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


log = logging.getLogger("odin.test")


def test_a_record_is_a_constant_event_with_typed_fields(stream: io.StringIO) -> None:
    log.info("shard acquired", extra={"shard_id": 7, "warm": True, "share": 0.5, "heir": None})
    (line,) = lines(stream)
    assert line["event"] == "shard acquired"
    assert (line["service"], line["node"], line["level"]) == ("engine", "engine-1", "info")
    assert (line["shard_id"], line["warm"], line["share"], line["heir"]) == (7, True, 0.5, None)
    assert str(line["at"]).endswith("Z")


def test_the_ids_of_the_work_stand_in_every_record_below(stream: io.StringIO) -> None:
    with working_on(workflow_id="order-1"):
        with working_on(attempt=2):
            log.info("inner")
        log.info("outer")
    log.info("outside")
    inner, outer, outside = lines(stream)
    assert (inner["workflow_id"], inner["attempt"]) == ("order-1", 2)
    assert "attempt" not in outer
    assert "workflow_id" not in outside
    assert work.get({}) == {}


def test_nothing_in_a_record_can_forge_a_second_one(stream: io.StringIO) -> None:
    log.info("odd %s", 'x\n{"event":"forged"}\x1b[31m', extra={"name_of": "a\r\nb\u2028c"})
    assert len(stream.getvalue().splitlines()) == 1
    pretty = PrettyFormatter("engine").format(
        logging.makeLogRecord({"msg": "odd", "levelname": "INFO", "who": "a\r\nb\x1b[2Jc"})
    )
    assert "\n" not in pretty
    assert "\x1b[2J" not in pretty


def test_secrets_do_not_reach_the_log(stream: io.StringIO) -> None:
    try:
        raise OSError("no route to amqp://me:hunter2@host/")  # noqa: TRY301 - the text matters
    except OSError:
        log.exception(
            "cannot reach postgresql://odin:hunter2@db:5432/odin",
            extra={"dsn": "hunter2", "nested": {"password": "hunter2"}, "argv": ["token=hunter2"]},
        )
    assert "hunter2" not in stream.getvalue()
    assert "no route to amqp://me:***@host/" in stream.getvalue()


def test_a_field_that_cannot_be_encoded_does_not_lose_the_record(stream: io.StringIO) -> None:
    log.info("odd field", extra={"thing": object(), "many": {1, 2}, "long": "x" * 20_000})
    (line,) = lines(stream)
    assert len(str(line["long"])) < 9_000


def test_a_stack_goes_into_the_line(stream: io.StringIO) -> None:
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        log.exception("failed")
    (line,) = lines(stream)
    assert "ZeroDivisionError" in str(line["error"])


def test_without_a_name_the_line_has_none() -> None:
    record = logging.makeLogRecord({"msg": "x", "levelname": "INFO"})
    assert "node" not in json.loads(JsonFormatter().format(record))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://u:p@h:1/d", "postgresql://u:***@h:1/d"),
        ("valkey://:p@h", "valkey://:***@h"),
        ("see amqps://u:p%40x@h/v now", "see amqps://u:***@h/v now"),
        ("postgresql://u:a/b@c@h/d", "postgresql://u:***@h/d"),
        ("host=h password=p user=u", "host=h password=*** user=u"),
        ("password='p q' x", "password=*** x"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("postgresql://h/d?sslmode=require", "postgresql://h/d?sslmode=require"),
        ("http://127.0.0.1:7100/v1/shards/3@x", "http://127.0.0.1:7100/v1/shards/3@x"),
        ("a plain sentence, nothing else", "a plain sentence, nothing else"),
    ],
)
def test_passwords_are_blotted_out_and_the_rest_stays(text: str, expected: str) -> None:
    assert redact(text) == expected
