"""The page of proofs lists every test module with the sentence and the command that it has."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from build_program import load_build_program

ROOT = Path(__file__).parents[2]

PROOFS = load_build_program("proofs")


def test_generated_proofs_page_is_current() -> None:
    assert PROOFS.PAGE.read_text() == PROOFS.page(), "run `make docs`"


def test_generated_proofs_page_lists_each_test_module_once() -> None:
    cells = [line.split(" | ")[-2] for line in PROOFS.page().splitlines() if line.endswith("` |")]
    files = [
        str(file.relative_to(ROOT / "tests"))
        for tier in PROOFS.TIERS
        for file in (ROOT / "tests" / tier).rglob("test_*.py")
    ]
    assert sorted(cells) == sorted(files)


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        ("pytestmark = [pytest.mark.wide]\ndef test_a(): ...", True),
        ("@pytest.mark.wide\ndef test_a(): ...\n@pytest.mark.wide\nasync def test_b(): ...", True),
        ("@pytest.mark.wide\ndef test_a(): ...\ndef test_b(): ...", False),
        ("pytestmark = pytest.mark.untraced\ndef test_a(): ...", False),
    ],
)
def test_a_module_is_wide_if_all_its_tests_are(text: str, wide: bool) -> None:
    assert PROOFS.marked_wide(ast.parse(text)) is wide


def test_a_test_module_without_a_sentence_is_named(tmp_path: Path) -> None:
    PROOFS.ROOT, root = tmp_path, PROOFS.ROOT
    try:
        (file := tmp_path / "tests/ovs/test_ovs_x.py").parent.mkdir(parents=True)
        file.write_text("def test_a(): ...\n")
        with pytest.raises(ValueError, match=r"tests/ovs/test_ovs_x\.py has no docstring"):
            PROOFS.read_proof(file)
    finally:
        PROOFS.ROOT = root
