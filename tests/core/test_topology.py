"""Names and arguments of queues: explicit, within the broker's limits, apart by kind."""

import pytest

from odin.core.topology import dead_letter_queue, queue_name, queue_of, task_queue
from odin.errors import InvalidArgumentError

_BROKER_NAME_BYTES_MAX = 255


def test_kinds_of_one_task_queue_have_queues_of_their_own() -> None:
    assert queue_of("w:default").name == "odin.workflow.default"
    assert queue_of("a:default").name == "odin.activity.default"


def test_a_task_queue_with_a_colon_keeps_its_name() -> None:
    assert queue_of("a:eu:fast").name == "odin.activity.eu:fast"


def test_the_longest_task_queue_still_has_a_name_that_the_broker_takes() -> None:
    assert len(queue_name("w", "q" * 200)) <= _BROKER_NAME_BYTES_MAX


def test_no_argument_is_left_to_a_broker_s_default() -> None:
    arguments = task_queue("w", "default").arguments
    assert arguments["x-queue-type"] == "quorum"
    assert int(arguments["x-delivery-limit"]) >= 20
    assert arguments["x-dead-letter-exchange"] == dead_letter_queue().exchange
    assert arguments["x-dead-letter-strategy"] == "at-least-once"
    assert arguments["x-overflow"] == "reject-publish"


def test_dead_letters_have_no_dead_letters_of_their_own() -> None:
    arguments = dead_letter_queue().arguments
    assert arguments["x-queue-type"] == "quorum"
    assert "x-dead-letter-exchange" not in arguments
    assert "x-delivery-limit" in arguments


def test_a_shard_has_no_queue() -> None:
    with pytest.raises(InvalidArgumentError):
        queue_of("shard:3")
