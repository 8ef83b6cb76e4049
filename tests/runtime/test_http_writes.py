"""How the answers of a connection are written."""

import asyncio
from typing import cast

from odin.runtime.http.protocol import HeadAndBody


class Written:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.writes.append(b"".join(parts))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def head_and_body() -> tuple[HeadAndBody, Written]:
    transport = Written()
    loop = asyncio.get_running_loop()
    return HeadAndBody(cast("asyncio.Transport", transport), loop), transport


async def test_head_and_body_of_an_answer_are_one_write_in_order() -> None:
    answer, transport = head_and_body()
    answer.write(b"head")
    answer.write(b"body")
    assert transport.writes == [b"headbody"]
    await asyncio.sleep(0)
    assert transport.writes == [b"headbody"]


async def test_a_head_whose_body_is_not_there_yet_goes_out_at_once() -> None:
    answer, transport = head_and_body()
    answer.write(b"head")
    await asyncio.sleep(0)
    assert transport.writes == [b"head"]
    answer.write(b"first")
    answer.close()
    assert (transport.writes, transport.closed) == ([b"head", b"first"], True)


async def test_nothing_is_written_to_a_connection_that_was_cut_meanwhile() -> None:
    answer, transport = head_and_body()
    answer.write(b"head")
    transport.close()
    await asyncio.sleep(0)
    assert transport.writes == []
