"""The health check that containers run: 0 if one of the URLs is well, else 1 and the reasons."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from odin.runtime.healthcheck import fault_of, main

NOBODY = "http://127.0.0.1:1/"


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        allowed = self.headers.get("Authorization") == "Bearer open-sesame"
        status = {"/well": 200, "/ill": 503, "/private": 200 if allowed else 401}[self.path]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b'{"items":[{"name":"worker-1"}]}')

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_service_that_answers_2xx_is_well_and_another_is_not(address: str) -> None:
    assert main([f"{address}/well"], {}) == 0
    assert main([f"{address}/ill"], {}) == 1


def test_one_well_url_of_several_is_enough(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([NOBODY, f"{address}/ill", f"{address}/well"], {}) == 0
    assert main([NOBODY, f"{address}/ill"], {}) == 1
    told = capsys.readouterr().err
    assert "ConnectionRefusedError" in told
    assert "answered 503" in told


def test_the_answer_must_hold_what_is_asked_for(address: str) -> None:
    assert main(["--holds", '"name":"worker-1"', f"{address}/well"], {}) == 0
    assert main(["--holds", '"name":"worker-2"', f"{address}/well"], {}) == 1


def test_the_token_of_the_environment_opens_what_is_closed(address: str) -> None:
    assert main([f"{address}/private"], {"ODIN_API_TOKEN": "open-sesame"}) == 0
    assert main([f"{address}/private"], {}) == 1


def test_a_file_is_well_while_it_is_written_to(tmp_path: Path) -> None:
    file = tmp_path / "client log.jsonl"
    url = file.as_uri()
    assert fault_of(url).startswith("FileNotFoundError")
    file.write_text("{}", encoding="utf-8")
    assert fault_of(url) == ""
    written = file.stat().st_mtime - 100
    os.utime(file, (written, written))
    assert fault_of(url).startswith("written to 10")
    assert main(["--within", "200", url], {}) == 0


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "http://127.0.0.1:port/", "nonsense"])
def test_what_is_no_such_url_is_not_well(url: str) -> None:
    assert fault_of(url) != ""
