"""The rules of the house that no linter knows."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(p for top in ("antrea", "tests", "benchmarks", "build") for p in (ROOT / top).rglob("*.py"))
BANNED = ("utils", "helpers", "common", "misc", "manager", "base")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_house_no_file_is_longer_than_500_lines_and_no_function_than_50(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 500
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= 50
    ]
    assert long == []


@pytest.mark.parametrize("path", [p for p in SOURCES if named(p).startswith("antrea")], ids=named)
def test_house_a_module_says_its_purpose_and_has_a_name_that_says_something(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))
    assert path.stem not in BANNED
    assert not path.stem.endswith(("_utils", "_helpers", "_controller", "_manager"))


def test_house_production_code_does_not_import_tests_or_benchmarks() -> None:
    imports = [
        f"{named(path)}: {name}"
        for path in SOURCES
        if named(path).startswith("antrea")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
        if name.split(".")[0] in ("tests", "benchmarks")
    ]
    assert imports == []


def test_house_production_code_does_not_use_wait_for_which_loses_cancellations_in_python_3_11() -> None:
    used = [
        named(path)
        for path in SOURCES
        if named(path).startswith("antrea") and "asyncio.wait_for(" in path.read_text()
    ]
    assert used == [], (
        "use asyncio.timeout: a task that is cancelled as wait_for ends goes on for ever (fixed in 3.12)"
    )
