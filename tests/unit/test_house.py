"""The rules of the house that no linter knows."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted(p for top in ("antrea", "tests", "benchmarks", "build") for p in (ROOT / top).rglob("*.py"))
BANNED = ("utils", "helpers", "common", "misc", "manager", "base")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


PRODUCT = [path for path in SOURCES if named(path).startswith("antrea")]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def nodes(tree: ast.AST) -> Iterator[ast.stmt]:
    """Every statement beneath `tree`; expressions, which are most of it, have none in them."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(tree, field, ()):
            yield node
            yield from nodes(node)


def test_house_no_file_is_longer_than_500_lines() -> None:
    lengths = {named(path): path.read_text().count("\n") for path in SOURCES}
    assert {name: lines for name, lines in lengths.items() if lines > 500} == {}


def test_house_no_function_is_longer_than_50_lines() -> None:
    long = {
        f"{named(path)}: {node.name}": node.end_lineno - node.lineno + 1
        for path in SOURCES
        for node in nodes(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= 50
    }
    assert long == {}


def test_house_a_module_says_its_purpose() -> None:
    assert [named(path) for path in PRODUCT if not ast.get_docstring(parsed(path))] == []


def test_house_a_module_has_a_name_that_says_something() -> None:
    vague = [
        named(path)
        for path in PRODUCT
        if path.stem in BANNED or path.stem.endswith(("_utils", "_helpers", "_controller", "_manager"))
    ]
    assert vague == []


def test_house_production_code_does_not_import_tests_or_benchmarks() -> None:
    imports = [
        f"{named(path)}: {name}"
        for path in PRODUCT
        for node in nodes(parsed(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
        if name.split(".")[0] in ("tests", "benchmarks")
    ]
    assert imports == []


def test_house_production_code_does_not_use_wait_for_which_loses_cancellations_in_python_3_11() -> None:
    used = [named(path) for path in PRODUCT if "asyncio.wait_for(" in path.read_text()]
    assert used == [], (
        "use asyncio.timeout: a task that is cancelled as wait_for ends goes on for ever (fixed in 3.12)"
    )
