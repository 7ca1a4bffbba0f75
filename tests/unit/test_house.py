"""The rules of the house that no linter knows."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.untraced

ROOT = Path(__file__).parents[2]
SOURCES = sorted(p for top in ("antrea", "tests", "benchmarks", "build") for p in (ROOT / top).rglob("*.py"))
BANNED = ("utils", "helpers", "common", "misc", "manager", "base")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


PRODUCT = [path for path in SOURCES if named(path).startswith("antrea")]


class Read(NamedTuple):
    """What the rules are about; trees of all files at once would cost the collector much."""

    functions: dict[str, int]
    """Lines by name, of functions and methods."""
    docstring: str | None
    imports: list[str]


@cache
def read(path: Path) -> Read:
    tree = ast.parse(path.read_text())
    functions, imports = dict[str, int](), list[str]()
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno
            functions[node.name] = max(lines, functions.get(node.name, 0))
        elif isinstance(node, ast.ImportFrom):
            imports.append(node.module or "")
        elif isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
    return Read(functions, ast.get_docstring(tree), imports)


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
        f"{named(path)}: {name}": lines + 1
        for path in SOURCES
        for name, lines in read(path).functions.items()
        if lines >= 50
    }
    assert long == {}


def test_house_a_module_says_its_purpose() -> None:
    assert [named(path) for path in PRODUCT if not read(path).docstring] == []


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
        for name in read(path).imports
        if name.split(".")[0] in ("tests", "benchmarks")
    ]
    assert imports == []


def test_house_production_code_does_not_use_wait_for_which_loses_cancellations_in_python_3_11() -> None:
    used = [named(path) for path in PRODUCT if "asyncio.wait_for(" in path.read_text()]
    assert used == [], (
        "use asyncio.timeout: a task that is cancelled as wait_for ends goes on for ever (fixed in 3.12)"
    )
