"""The rules of the house that no linter knows."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.untraced

ROOT = Path(__file__).parents[2]
SOURCES = sorted(p for top in ("antrea", "tests", "benchmarks", "build") for p in (ROOT / top).rglob("*.py"))
BANNED = ("utils", "helpers", "common", "misc", "manager", "base")
METAPHORS = {
    "Abreast", "Aside", "Courier", "Crowd", "Cutting", "Desk", "Door", "Errand", "Heard", "Herald", "Home", "Knock", "Look",
    "Looker", "Outbox", "Parted", "Promise", "Purse", "Remembering", "Rumour", "Rumours", "Said", "Says", "Seeker", "Severed",
    "Sights", "Stranger", "Tell", "Told", "Turn", "Turns", "Voice", "Wiring", "Wish", "Word",
}  # fmt: skip
"""Words that names of classes do not contain; docs/glossary.md has the terms."""
FOREIGN = ("antrea/apis/", "antrea/config/", "antrea/lab/", "antrea/antctl/", "antrea/explain/")
"""Their names are those of Kubernetes' kinds, or are never read beside facts."""
PERSONIFIED = re.compile(
    r"\b(goodbye|hears?|heard|knocks?|knows|nobody|said|says?|somebody|speaks?|tells?|told|whoever)\b",
    re.IGNORECASE,
)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


PRODUCT = [path for path in SOURCES if named(path).startswith("antrea")]


class Read(NamedTuple):
    """What the rules are about; trees of all files at once would cost the collector much."""

    functions: dict[str, int]
    """Lines by name, of functions and methods."""
    docstring: str | None
    imports: list[str]
    classes: dict[str, tuple[str, ...]]
    """The bases by name; one that has a rank is an entry."""
    prose: list[str]
    """All docstrings."""


@cache
def read(path: Path) -> Read:
    tree = ast.parse(path.read_text())
    functions, imports = dict[str, int](), list[str]()
    classes, prose = dict[str, tuple[str, ...]](), [ast.get_docstring(tree) or ""]
    for node in nodes(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            prose.append(node.value.value)
        if isinstance(node, ast.ClassDef):
            bases = (base.id for base in node.bases if isinstance(base, ast.Name))
            ranks = ("rank" for one in node.body if named_statement(one) == "rank")
            classes[node.name] = (*bases, *ranks)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno
            functions[node.name] = max(lines, functions.get(node.name, 0))
        elif isinstance(node, ast.ImportFrom):
            imports.append(node.module or "")
        elif isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
    return Read(functions, ast.get_docstring(tree), imports, classes, prose)


def named_statement(node: ast.stmt) -> str:
    """What an attribute with a type, or a method, is called."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return node.name if isinstance(node, ast.FunctionDef) else ""


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


def test_house_a_module_that_is_run_is_never_one_of_the_working_directory() -> None:
    """Without -P `python -m` imports whatever lies in the folder that the user happens to be in."""
    started = re.compile(
        r"""(sys\.executable|PYTHON)\}?(",|,)? ?"?-m\b|\bpython3? -m (venv|antrea)|PYTHON" -m"""
    )
    scripts = [
        path for top in ("scripts", "build", "cni") for path in (ROOT / top).rglob("*") if path.is_file()
    ]
    files = {*PRODUCT, *(path for path in scripts if "__pycache__" not in path.parts), ROOT / "Makefile"}
    found = [
        f"{named(path)}: {line.strip()}"
        for path in sorted(files)
        for line in path.read_text(errors="replace").splitlines()
        if started.search(line) and '"pytest"' not in line and "`python -m" not in line
    ]
    assert found == []


def test_house_names_of_classes_are_no_metaphors() -> None:
    words = {
        f"{named(path)}: {name}"
        for path in PRODUCT
        for name in read(path).classes
        if METAPHORS & set(re.findall(r"[A-Z][a-z]*", name))
    }
    assert words == set(), "docs/glossary.md has the terms"


def test_house_facts_acts_and_entries_have_names_of_their_own() -> None:
    """Units are found by grepping for them."""
    found = [
        (name, bases)
        for path in PRODUCT
        if not named(path).startswith(FOREIGN)
        for name, bases in read(path).classes.items()
    ]
    kinds = {"Fact", "Act", "rank"}
    while more := {name for name, bases in found if kinds & set(bases)} - kinds:
        kinds |= more
    counts = Counter(name for name, _ in found)
    assert {name for name in kinds if counts[name] > 1} == set()


def test_house_functions_of_units_have_names_of_their_own() -> None:
    features = [path for path in PRODUCT if named(path).startswith("antrea/features/")]
    units = {name for path in features for name in re.findall(r"\bUnit\(\w+, (\w+)", path.read_text())}
    counts = Counter(
        name
        for path in features
        for name in re.findall(r"^def (\w+)\(\w+: Facts\b", path.read_text(), re.MULTILINE)
    )
    assert len(units) > 80
    assert {name for name in units if counts[name] > 1} == set()


def test_house_log_sentences_have_no_personification() -> None:
    sentences = {
        f"{named(path)}: {sentence}"
        for path in PRODUCT
        for sentence in re.findall(
            r"\blog\.(?:v\(\d\)\.)?(?:info|warning|error)\(\s*f?\"([^\"]*)\"", path.read_text()
        )
        if PERSONIFIED.search(sentence)
    }
    assert sentences == set()


def test_house_docstrings_have_no_personification() -> None:
    prose = {
        f"{named(path)}: {text}" for path in PRODUCT for text in read(path).prose if PERSONIFIED.search(text)
    }
    assert prose == set()
