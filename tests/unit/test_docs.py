"""Pages name files, tests and sections that exist."""

import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.untraced

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ROADMAP.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted((DOCS / "decisions").glob("*.md")),
]
TOPS = "antrea|benchmarks|build|cni|docs|examples|lab|scripts|tests"
NAMED_PATH = re.compile(rf"(?<![\w/.:-])(?:{TOPS})/[\w./*-]*(?:\w\.(?:py|c|md|yaml|yml|sh|conf)\b|\w/(?=`))")
"""From the repository's root: a file, or in backticks a folder; `*` stands for any text."""
MADE = ("build/out/",)
"""Where `make` writes."""
NAMED_TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
SHORT_NAMES_IN = "tests/unit/engine"
"""Where a test file is that a page names without its folder."""
LINK = re.compile(r"\]\((?!\w+:)([^)#]*)(?:#([^)]*))?\)")


def pages_with(found: dict[Path, list[str]]) -> dict[str, list[str]]:
    return {str(page.relative_to(ROOT)): names for page, names in found.items() if names}


@cache
def sections(page: Path) -> frozenset[str]:
    """Anchors as GitHub makes them of headings."""
    seen, anchors = Counter[str](), set[str]()
    fenced = False
    for line in page.read_text().splitlines():
        fenced ^= line.startswith("```")
        if not fenced and (heading := re.match(r"#+ (.*)", line)):
            words = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
            anchors.add(f"{words}-{seen[words]}" if seen[words] else words)
            seen[words] += 1
    return frozenset(anchors)


def test_docs_name_files_that_exist() -> None:
    named = {page: sorted(set(NAMED_PATH.findall(page.read_text()))) for page in PAGES}
    assert sum(map(len, named.values())) > 100
    missing = {
        page: [name for name in names if not name.startswith(MADE) and not [*ROOT.glob(name)]]
        for page, names in named.items()
    }
    assert pages_with(missing) == {}


def test_docs_name_tests_that_exist() -> None:
    named = {page: sorted(set(NAMED_TEST.findall(page.read_text()))) for page in PAGES}
    assert sum(map(len, named.values())) > 30
    missing = {
        page: [f"{file}::{test}" for file, test in tests if not has_test(file, test)]
        for page, tests in named.items()
    }
    assert pages_with(missing) == {}


def has_test(file: str, test: str) -> bool:
    path = ROOT / (file if "/" in file else f"{SHORT_NAMES_IN}/{file}")
    return path.is_file() and f"def {test}(" in path.read_text()


def test_docs_link_to_pages_and_sections_that_exist() -> None:
    assert pages_with({page: [*broken_links(page)] for page in PAGES}) == {}


def broken_links(page: Path) -> list[str]:
    broken = []
    for path, anchor in LINK.findall(page.read_text()):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in sections(target)):
            broken.append(f"{path}#{anchor}")
    return broken


def test_docs_name_events_conditions_and_checks_that_exist() -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    named = {*re.findall(r"`([A-Z][a-z]+(?:[A-Z]+[a-z]+)+)`", page), *re.findall(r"reason=(\w+)", page)}
    named |= {*re.findall(r"check `([\w-]+)`", page)}
    assert len(named) > 20
    sources = "".join(path.read_text() for path in (ROOT / "antrea").rglob("*.py"))
    assert {name for name in named if f'"{name}"' not in sources} == set()


def test_docs_index_lists_every_page_once() -> None:
    listed = Counter(
        (DOCS / path).resolve() for path, _ in LINK.findall((DOCS / "README.md").read_text()) if path
    )
    pages = {page for page in DOCS.rglob("*.md") if page.name != "README.md"}
    assert {str(page.relative_to(DOCS)) for page in pages if listed[page] != 1} == set()


def test_each_dependency_has_a_row_in_its_decision() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lab = tomllib.loads((ROOT / "lab/pyproject.toml").read_text())["project"]["dependencies"]
    named = [
        *project["dependencies"],
        *(name for name in lab if name != project["name"]),
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    page = (DOCS / "decisions/0001-dependencies.md").read_text().partition("| Program ")[0]
    assert [name for name in named if re.split("[=><]", name)[0] not in page] == []


def test_docs_give_the_value_of_the_chart_before_the_key_of_the_configmap() -> None:
    """Helm and GitOps tools undo edits of the ConfigMap; install.md and troubleshooting.md list both ways."""
    begins = re.compile(
        r"^\s*(# antrea-(?:agent|controller)\.conf|kubectl .*edit configmap antrea-config).*$", re.MULTILINE
    )
    found = {page: begins.findall(page.read_text()) for page in PAGES}
    assert pages_with(found) == {}
