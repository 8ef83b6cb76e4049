"""compose.yaml and the env file, as the tests read them."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # the stubs are a package of their own

from deploy.environment import example_variables, filled

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "deploy" / "env.example"
COMPOSE = ROOT / "compose.yaml"

_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?P<rule>:[-?])(?P<text>[^}]*)\}")


def example() -> dict[str, str]:
    """Return the example's variables as they stand."""
    return example_variables(EXAMPLE.read_text(encoding="utf-8"))


def deployment() -> dict[str, str]:
    """Return the example's variables with secrets made up."""
    return example_variables(filled(EXAMPLE.read_text(encoding="utf-8")))


@cache
def _tree() -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    return tree


def references() -> dict[str, set[str]]:
    """Return each variable that compose.yaml reads, with the rules (`:-`, `:?`) beside it."""
    found: dict[str, set[str]] = {}
    for match in _VARIABLE.finditer(COMPOSE.read_text(encoding="utf-8")):
        found.setdefault(match["name"], set()).add(match["rule"])
    return found


def services(variables: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the services of compose.yaml with the variables put in, as compose does it."""

    def value(match: re.Match[str]) -> str:
        given = variables.get(match["name"], "")
        if not given and match["rule"] == ":?":
            raise LookupError(f"{match['name']}: {match['text']}")
        return given or match["text"]

    def put_in(node: Any) -> Any:  # noqa: ANN401 - a tree of YAML
        match node:
            case str():
                text = _VARIABLE.sub(value, node)
                assert "${" not in text, f"a reference that this reader does not know: {text}"
                return text
            case dict():
                return {key: put_in(one) for key, one in node.items()}
            case list():
                return [put_in(one) for one in node]
            case _:
                return node

    found: dict[str, dict[str, Any]] = put_in(_tree()["services"])
    return found


def module_run_by(service: Mapping[str, Any]) -> str:
    """Return the module that a service of odin's image runs; empty for other images."""
    command = service.get("command") or []
    return str(command[2]) if command[:2] == ["python", "-m"] else ""
