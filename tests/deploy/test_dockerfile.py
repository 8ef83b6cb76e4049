"""The Dockerfile builds in one stage and runs in another, which has nothing to build with."""

import re

from .reading import ROOT

LINES = [
    line
    for line in re.sub(
        r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8")
    ).splitlines()
    if line and not line.startswith("#")
]
BEGINNINGS = [number for number, line in enumerate(LINES) if line.startswith("FROM ")]
BUILDER, RUNTIME = LINES[BEGINNINGS[0] : BEGINNINGS[1]], LINES[BEGINNINGS[1] :]


def test_there_are_two_stages_on_a_base_that_can_be_named() -> None:
    assert [LINES[number] for number in BEGINNINGS] == [
        "FROM ${ODIN_PYTHON_IMAGE} AS builder",
        "FROM ${ODIN_PYTHON_IMAGE} AS runtime",
    ]
    assert re.fullmatch(r"ARG ODIN_PYTHON_IMAGE=python:3\.\d+[\w.-]*", LINES[0])


def test_the_runtime_neither_installs_nor_compiles() -> None:
    run = " ".join(line for line in RUNTIME if line.startswith("RUN "))
    assert re.search(r"\b(apt|apt-get|pip|gcc|make|curl|wget)\b", run) is None
    copied = [line for line in RUNTIME if line.startswith(("COPY", "ADD"))]
    assert copied == ["COPY --from=builder /opt/odin /opt/odin"]


def test_the_image_does_not_run_as_root_and_says_whether_it_is_well() -> None:
    (user,) = (line.split()[1] for line in RUNTIME if line.startswith("USER "))
    assert int(user.partition(":")[0]) > 0
    (check,) = (line for line in RUNTIME if line.startswith("HEALTHCHECK "))
    assert "odin.runtime.healthcheck" in check


def test_what_is_installed_is_pinned() -> None:
    installs = [line for line in BUILDER if "pip install" in line or "pip wheel" in line]
    assert len(installs) == 2
    assert "--requirement pinned.txt" in installs[0]
    assert all("--no-deps" in part for part in installs[1].split("&&") if "wheel" in part)


def test_only_what_the_wheel_is_made_of_reaches_the_builder() -> None:
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert "*" in rules
    let_in = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert {name for name in let_in if name.startswith(".") or name in {"tests", "deploy"}} == set()
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    packages = re.findall(r'^"(\w+)" = "odin/services/', project, re.MULTILINE)
    assert {"odin", *packages} <= let_in
