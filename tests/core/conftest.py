"""`--rewrite` writes the scenario files anew; review the diff."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the golden scenario files."""
    parser.addoption("--rewrite", action="store_true", help="write tests/core/scenarios/*.txt anew")
