"""Rules of the code that no linter knows, each as a test that names the file and the line."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from .tree import ROOT, functions, modules, parsed, text, texts

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
THIS_FILE = Path(__file__).relative_to(ROOT)

# The words that are banned, for the search alone: no file but this one may hold one of them.
_UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
_SKIPPED = re.compile(r"\b(pytest\.skip|mark\.skip|xfail|importorskip)\b")
_PLACES = re.compile(
    r"(?<![\w.~}])/(work|root|tmp/odin)/"
    r"|pypi\.org|pythonhosted|registry\.npmjs|deb\.debian|(?<!no-emit-)index-url"
)
_NOQA = re.compile(r"#\s*noqa\b(?P<rest>.*)", re.IGNORECASE)
_NOQA_REASONED = re.compile(r":\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*\s+(-+|—|#|:)?\s*\w+\W+\w+")
_IGNORE = re.compile(r"#\s*type:\s*ignore(?P<rest>.*)")
_IGNORE_REASONED = re.compile(r"\[[a-z-]+(,\s*[a-z-]+)*\]\s+(-+|—|#|:)?\s*\w+\W+\w+")
_SQL = re.compile(
    r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|CREATE|ALTER|DROP|TRUNCATE|LOCK|COPY|SET)\s"
)


def test_no_module_is_longer_than_one_sitting() -> None:
    lengths = {path: len(text(path).splitlines()) for path in modules()}
    assert [f"{path}: {n} lines" for path, n in lengths.items() if n > MODULE_LINES_MAX] == []


def test_no_function_is_longer_than_one_screen() -> None:
    too_long = [
        f"{path}:{node.lineno} {node.name}: {length} lines"
        for path in modules()
        for node in functions(path)
        if (length := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert too_long == []


def test_nothing_is_left_for_later() -> None:
    assert list(_lines_with(_UNFINISHED, texts())) == []


def test_no_test_is_passed_over() -> None:
    own = [path for path in modules() if path.parts[0] == "tests"]
    assert list(_lines_with(_SKIPPED, own)) == []


def test_no_engine_in_the_loop_of_the_tests_outlives_a_module() -> None:
    """A test that holds up the loop for longer than a lease ends an engine that waits for others.

    It then begins a new life under the next test, which finds its links closed.
    """
    shared = [
        f"{path}:{node.lineno} {node.name}"
        for path in modules()
        for node in functions(path)
        if any(
            'scope="session"' in ast.unparse(one).replace("'", '"') for one in node.decorator_list
        )
        if "running_bed(" in ast.unparse(node)
    ]
    assert shared == []


def test_every_exemption_from_a_rule_names_the_rule_and_the_reason() -> None:
    unexplained = [
        f"{path}:{number}: {line.strip()}"
        for path in modules()
        if path != THIS_FILE
        for number, line in enumerate(text(path).splitlines(), 1)
        for mark, reasoned in ((_NOQA, _NOQA_REASONED), (_IGNORE, _IGNORE_REASONED))
        if (found := mark.search(line)) and not reasoned.match(found["rest"])
    ]
    assert unexplained == []


def test_no_sql_is_put_together_from_values() -> None:
    built = [
        f"{path}:{node.lineno}"
        for path in modules(shipped_only=True)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.expr) and _is_built_sql(node)
    ]
    assert built == []


def test_every_test_file_holds_a_test() -> None:
    empty = [
        str(path)
        for path in modules()
        if path.parts[0] == "tests" and path.name.startswith("test_") and not _holds_test(path)
    ]
    assert empty == []


def test_no_file_names_a_package_registry_or_a_place_on_one_machine() -> None:
    assert list(_lines_with(_PLACES, texts())) == []


def test_every_package_says_what_it_is() -> None:
    silent = [
        str(path)
        for path in modules(shipped_only=True)
        if path.name == "__init__.py" and not ast.get_docstring(parsed(path))
    ]
    assert silent == []


def _lines_with(pattern: re.Pattern[str], paths: list[Path]) -> Iterator[str]:
    for path in paths:
        if path == THIS_FILE:  # it has to spell what it forbids
            continue
        for number, line in enumerate(text(path).splitlines(), 1):
            if pattern.search(line):
                yield f"{path}:{number}: {line.strip()[:120]}"


def _is_built_sql(node: ast.expr) -> bool:
    match node:
        case ast.JoinedStr(values=[ast.Constant(value=str(start)), *_] as parts):
            has_value = any(isinstance(part, ast.FormattedValue) for part in parts)
            return has_value and _SQL.match(start) is not None
        case ast.BinOp(left=ast.Constant(value=str(start)), op=ast.Mod() | ast.Add()):
            return _SQL.match(start) is not None
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(start)), attr="format")):
            return _SQL.match(start) is not None
        case _:
            return False


def _holds_test(path: Path) -> bool:
    if any(node.name.startswith("test_") for node in functions(path)):
        return True
    return any(
        isinstance(node, ast.Attribute) and node.attr == "TestCase"
        for node in ast.walk(parsed(path))
    )
