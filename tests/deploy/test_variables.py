"""The env file, compose.yaml and the settings of the services say the same."""

import subprocess
import sys
from typing import Any

import pytest
from pydantic import AliasChoices
from pydantic_settings import BaseSettings

from cluster.load_settings import LoadSettings
from deploy.environment import EXAMPLE, SECRETS, filled
from engine.settings import EngineSettings
from mocks.settings import MockSettings
from odin.runtime.settings import Block, PostgresSettings, load
from worker.settings import WorkerSettings

from .reading import ROOT, deployment, example, module_run_by, references, services

SETTINGS: dict[str, type[BaseSettings]] = {
    "odin.services.engine": EngineSettings,
    "odin.services.worker": WorkerSettings,
    "odin.services.mocks": MockSettings,
    "odin.services.cluster.load": LoadSettings,
    "odin.runtime.migrate": PostgresSettings,
}
OWN = [name for name, one in services(deployment()).items() if module_run_by(one)]
# For rigs that put something between the parts, and for mocks with a database of their own.
NOT_IN_CONTAINERS = {
    "ODIN_ENGINE_ROUTES",
    "ODIN_WORKER_ROUTES",
    "ODIN_MOCK_DSN",
    "ODIN_DEBUG_COMMIT_STEPS",
}


def variables_of(settings: type[BaseSettings]) -> set[str]:
    """Return every environment variable that a settings class reads."""
    prefix = settings.model_config.get("env_prefix", "")
    found: set[str] = set()
    for name, field in settings.model_fields.items():
        alias: Any = field.validation_alias
        if isinstance(alias, AliasChoices):
            found |= {str(choice) for choice in alias.choices}
        elif isinstance(field.annotation, type) and issubclass(field.annotation, Block):
            found |= {f"{prefix}{name}__{inner}".upper() for inner in field.annotation.model_fields}
        else:
            found.add(f"{prefix}{name}".upper())
    return found


def environment_of(name: str, variables: dict[str, str]) -> dict[str, str]:
    found: dict[str, str] = services(variables)[name]["environment"]
    return found


def settings_of(name: str) -> type[BaseSettings]:
    return SETTINGS[module_run_by(services(deployment())[name])]


@pytest.mark.parametrize("name", OWN)
def test_the_example_loads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in environment_of(name, deployment()).items():
        monkeypatch.setenv(variable, value)
    assert isinstance(load(settings_of(name)), settings_of(name))


@pytest.mark.parametrize("name", OWN)
def test_an_empty_tunable_takes_the_default_of_the_settings(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {variable: value for variable, value in deployment().items() if variable in SECRETS}
    for variable, value in environment_of(name, secrets).items():
        monkeypatch.setenv(variable, value)
    by_default = load(settings_of(name)).model_dump()
    for variable, value in environment_of(name, {**deployment(), **secrets}).items():
        monkeypatch.setenv(variable, value)
    assert load(settings_of(name)).model_dump() == by_default, "the example shows other values"


@pytest.mark.parametrize("name", OWN)
def test_every_variable_of_a_service_is_known_to_its_settings(name: str) -> None:
    given = environment_of(name, deployment())
    assert {
        variable for variable in given if variable not in variables_of(settings_of(name))
    } == set()


@pytest.mark.parametrize("module", sorted(SETTINGS))
def test_every_setting_can_be_given_in_containers(module: str) -> None:
    described = services(deployment())
    given: set[str] = set()
    for service in described.values():
        if module_run_by(service) == module:
            given |= set(service["environment"])
    missing = variables_of(SETTINGS[module]) - given - NOT_IN_CONTAINERS
    if module == "odin.runtime.migrate":
        missing -= {"ODIN_POSTGRES_POOL_SIZE"}  # one connection is all that it opens
    if module == "odin.services.cluster.load":
        missing -= {"ODIN_POSTGRES_DSN"}  # a client has no business in the database there
    assert missing == set(), "add them to compose.yaml and deploy/env.example"


def test_the_example_lists_exactly_what_compose_reads() -> None:
    assert set(example()) == set(references())


def test_the_example_holds_no_secret_and_compose_asks_for_each() -> None:
    assert [name for name in SECRETS if example()[name]] == []
    assert {name for name, rules in references().items() if ":?" in rules} == set(SECRETS)
    assert all(references()[name] == {":?"} for name in SECRETS)


@pytest.mark.parametrize("secret", SECRETS)
def test_compose_refuses_to_begin_without_a_secret(secret: str) -> None:
    with pytest.raises(LookupError, match=secret):
        services({**deployment(), secret: ""})


def test_each_deployment_gets_secrets_of_its_own() -> None:
    one, other = deployment(), deployment()
    assert len({one[name] for name in SECRETS} | {other[name] for name in SECRETS}) == 10
    assert all(one[name].isalnum() and len(one[name]) >= 32 for name in SECRETS)
    assert {name: one[name] for name in one if name not in SECRETS} == {
        name: value for name, value in example().items() if name not in SECRETS
    }


def test_a_given_value_is_put_in_and_an_unknown_one_is_refused() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert "\nODIN_LANES=2\n" in filled(text, {"ODIN_LANES": "2"})
    with pytest.raises(KeyError, match="ODIN_LANE"):
        filled(text, {"ODIN_LANE": "2"})


def test_the_env_file_is_made_with_the_standard_library_alone() -> None:
    made = subprocess.run(
        [sys.executable, "-S", "-m", "deploy.environment"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert "\nODIN_API_TOKEN=" in made.stdout
    assert "\nODIN_API_TOKEN=\n" not in made.stdout
