"""Where the services live: beside `odin` in a checkout, below `odin.services` in a wheel.

A wheel puts nothing but `odin` at the top, so that an author's own `worker.py` never clashes with
ours. Services are started by module name (`python -m ...`); this is what tells the name, by where
the installed package lies and never by what the current directory happens to hold.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import odin
from odin.errors import ConfigurationError, InvalidArgumentError

_WHEEL_PACKAGE = "odin.services"


def module_of(service: str) -> str:
    """Return the dotted name of a service's package.

    Args:
        service: Its short name: "engine", "worker", "mocks", ...

    Raises:
        InvalidArgumentError: it is not a plain name.
        ConfigurationError: this installation has no such service.
    """
    if not service.isidentifier():
        raise InvalidArgumentError(f"{service!r} is not the name of a service")
    if (_package_folder() / "services" / service).is_dir():
        return f"{_WHEEL_PACKAGE}.{service}"
    if (checkout() / service / "__init__.py").is_file():
        return service
    raise ConfigurationError(
        f"this installation of odin has no service {service!r}: it is neither in "
        f"{_package_folder() / 'services'} nor beside {_package_folder()}"
    )


def command_of(service: str, *arguments: str) -> list[str]:
    """Return the command that starts a service: this interpreter, by module, path kept safe.

    `-P` keeps the current directory off `sys.path`: a stray `engine.py` there must not be run.

    Raises:
        InvalidArgumentError, ConfigurationError: as for `module_of`.
    """
    return [sys.executable, "-P", "-m", module_of(service), *arguments]


def environment_of(environ: dict[str, str]) -> dict[str, str]:
    """Return `environ` with what a service started by `command_of` needs to be found.

    In a checkout that is the checkout itself on PYTHONPATH, unless it is installed there already.
    """
    root = str(checkout())
    paths = [path for path in environ.get("PYTHONPATH", "").split(":") if path]
    return {**environ, "PYTHONPATH": ":".join([root, *(p for p in paths if p != root)])}


def schema_folder() -> Path:
    """Return the folder that holds the migrations.

    Raises:
        ConfigurationError: there is none in this installation.
    """
    for folder in (_package_folder() / "services" / "schema", checkout() / "schema"):
        if folder.is_dir():
            return folder
    raise ConfigurationError(
        f"no migrations: neither {_package_folder() / 'services' / 'schema'} nor "
        f"{checkout() / 'schema'} exists"
    )


def checkout() -> Path:
    """Return the folder that holds the `odin` package."""
    return _package_folder().parent


def is_importable(service: str) -> bool:
    """Return whether this process can import the service from where `module_of` says it is."""
    spec = find_spec(module_of(service))
    if spec is None or spec.origin is None:
        return False
    return checkout() in Path(spec.origin).resolve().parents


def _package_folder() -> Path:
    return Path(odin.__file__).resolve().parent
