"""Regular expressions of the product take time in proportion to the text: many are given text that tenants or networks wrote.

Each literal pattern is tried with texts of one repeated part, the usual way to make a search go back again and again. An
expression that needs the square of the length is stopped, as is one that needs more.
"""

from __future__ import annotations

import ast
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PRODUCT = Path(__file__).parents[2] / "antrea"
LENGTH, SECONDS = 30_000, 0.1
"""Of a text, and of the processor: linear expressions need a hundredth of it, those with the square of the length more."""
PARTS = (
    *("a", "A", "1", " ", "\t", "\n", ".", "-", "/", ":", ",", '"', "\\", "[", "{", "=", "\u0661"),
    *("a.", "1.", "a-", "a ", '\\"', "x:", "::", "a=", ", ", "a,", "[a"),
)
METHODS = {"fullmatch": "fullmatch", "match": "match", "search": "search"}
"""How a pattern is tried; other methods, such as sub and split, find all matches."""
ALLOWED = {
    (
        "config/shape.py",
        r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)",
    ): "of at most MAX_DURATION characters",
    ("openflow/pipeline.py", r"\{([^}]*)\}"): "for templates of the product itself",
    ("outside/netlink/held_address.py", r"(\d+) \. (\S+) \. (\d+) \. (\S+) \. (\d+)"): "for output of nft",
}


class Expression(NamedTuple):
    """A literal pattern and how it is used."""

    file: str
    pattern: Any
    methods: frozenset[str]
    flags: int


class TookLong(Exception):
    """The time is over."""


def expressions(path: Path) -> Iterator[Expression]:
    """The patterns of a module; of one that is kept under a name, the methods that are called by that name."""
    tree = ast.parse(path.read_text())
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re.")
    ]
    called: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            called.setdefault(ast.unparse(node.value), set()).add(node.attr)
    names = {
        id(node.value): ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
    }
    for call in calls:
        method = ast.unparse(call.func).removeprefix("re.")
        pattern = call.args[0] if call.args else None
        if not isinstance(pattern, ast.Constant) or not isinstance(pattern.value, str | bytes):
            continue
        used = {method} if method != "compile" else called.get(names.get(id(call), ""), set())
        flags = sum(getattr(re, name) for name in re.findall(r"\bre\.([A-Z]+)\b", ast.unparse(call)))
        yield Expression(str(path.relative_to(PRODUCT)), pattern.value, frozenset(used or {"match"}), flags)


def slow(one: Expression) -> str:
    """The part whose repetition takes the expression too long; empty if there is none."""
    compiled = re.compile(one.pattern, one.flags)
    for part in PARTS:
        text: Any = part * (LENGTH // len(part)) + "\0"
        if isinstance(one.pattern, bytes):
            text = text.encode()
        for method in {METHODS.get(name, "findall") for name in one.methods - {"pattern", "groups"}}:
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            try:
                getattr(compiled, method)(text)
            except TookLong:
                return repr(part)
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return ""


@pytest.fixture
def timer() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TookLong

    before = signal.signal(signal.SIGVTALRM, stop)
    yield
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.usefixtures("timer")
def test_no_expression_takes_more_than_the_length_of_its_text() -> None:
    every = [one for path in sorted(PRODUCT.rglob("*.py")) for one in expressions(path)]
    assert len(every) > 100
    found = {(one.file, one.pattern): part for one in every if (part := slow(one))}
    assert found.keys() - ALLOWED.keys() == set(), found
    assert ALLOWED.keys() - found.keys() == set(), "these are fast now: take them out of the list"


@pytest.mark.usefixtures("timer")
@pytest.mark.parametrize("pattern", [r"(\d+\.?\d*|\.\d+)s", r",(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", r"(a+)+b"])
def test_an_expression_that_goes_back_again_and_again_is_found(pattern: str) -> None:
    assert slow(Expression("", pattern, frozenset({"findall"}), 0))
