"""An object that nests too deeply is its own trouble: all others of its collection arrive."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antrea.apis.core import Node
from antrea.errors import Unavailable
from antrea.outside.kube.answer import MAX_LEVELS, Drop, Odd, Put, change_of, cut, page_of

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = "/api/v1/nodes"
WHY = f"a value nests more than {MAX_LEVELS} levels deep"
DEEP = pytest.mark.parametrize("levels", [1_000, 3_000, 10_000])
OPENINGS = pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"]":', "}]")])


def node(name: str, extra: str = "1") -> str:
    metadata = json.dumps({"name": name, "uid": f"u-{name}", "resourceVersion": "7", "labels": {"a": name}})
    return f'{{"spec": {{"x": {extra}}}, "metadata": {metadata}}}'


def nested(levels: int, opening: str = "[", closing: str = "]") -> str:
    return opening * levels + "1" + closing * levels


def page(*items: str) -> bytes:
    head = '{"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": ['
    return f"{head}{', '.join(items)}]}}".encode()


@DEEP
@OPENINGS
@pytest.mark.parametrize("place", [0, 1, 2])
def test_others_of_a_page_arrive(levels: int, opening: str, closing: str, place: int) -> None:
    items = [node("a"), node("b")]
    items.insert(place, node("odd", nested(levels, opening, closing)))
    meta, found, odd = page_of(page(*items), Node, NODES)
    assert meta.resource_version == "9"
    assert [one.metadata.name for one in found] == ["a", "b"]
    assert odd == (Odd("odd", WHY, uid="u-odd", version="7", kind="Node", api_version="v1"),)


@DEEP
@pytest.mark.parametrize(("kind", "gone"), [("ADDED", False), ("MODIFIED", False), ("DELETED", True)])
def test_a_watch_names_the_object_and_goes_on(levels: int, kind: str, gone: bool) -> None:
    line = f'{{"type": "{kind}", "object": {node("odd", nested(levels))}}}'.encode()
    assert change_of(line, Node, NODES) == (Odd("odd", WHY, uid="u-odd", version="7", gone=gone), "7")


@pytest.mark.parametrize("levels", [1, 50, 900])
def test_what_the_decoder_takes_is_taken(levels: int) -> None:
    _, found, odd = page_of(page(node("a", nested(levels))), Node, NODES)
    assert [one.metadata.name for one in found] == ["a"]
    assert odd == ()
    for kind, change in (("ADDED", Put), ("DELETED", Drop)):
        line = f'{{"type": "{kind}", "object": {node("a", nested(levels))}}}'.encode()
        assert isinstance(change_of(line, Node, NODES)[0], change)


def test_strings_with_brackets_and_quotes_are_no_nesting() -> None:
    text = json.dumps('["{' + "[" * 5_000 + '\\"')
    _, found, odd = page_of(page(node("a", text), node("odd", nested(3_000))), Node, NODES)
    assert [one.metadata.name for one in found] == ["a"]
    assert [one.name for one in odd] == ["odd"]


@pytest.mark.parametrize(
    "broken",
    [
        lambda text: text[:-2],
        lambda text: text.replace(b"[[", b"[", 1),
        lambda text: text.replace(b"1]", b"1]]", 1),
        lambda text: text.replace(b'"items"', b'"items'),
    ],
)
def test_what_is_no_json_stays_unavailable(broken: Callable[[bytes], bytes]) -> None:
    text = broken(page(node("odd", nested(3_000))))
    with pytest.raises(Unavailable):
        page_of(text, Node, NODES)


JSON = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_nothing_is_cut_of_what_is_flat(tree: Any) -> None:
    for text in (json.dumps(tree), json.dumps(tree, ensure_ascii=False)):
        assert cut(text.encode(), b"0") == text.encode()


@given(JSON, st.integers(0, 3))
def test_what_is_cut_is_what_is_too_deep(tree: Any, more: int) -> None:
    kept = MAX_LEVELS - 1 + more
    text = f"{'[' * kept}{json.dumps({'a': tree})}{']' * kept}"
    found = cut(text.encode(), b'"cut"').decode()
    if more == 0 and not isinstance(tree, list | dict):
        assert found == text
    elif more:
        assert found == f'{"[" * MAX_LEVELS}"cut"{"]" * MAX_LEVELS}'


def test_a_large_page_takes_about_as_long_as_its_size() -> None:
    """Compared with a loop of this machine."""
    items = [node(f"n{number}", json.dumps([{"a": "x" * 50, "b": ["\\" * 9]}] * 40)) for number in range(500)]
    text = page(*items, node("odd", nested(3_000)))
    began = time.process_time()
    sum(range(10_000_000))
    unit, began = time.process_time() - began, time.process_time()
    assert len(page_of(text, Node, NODES)[1]) == 500
    assert time.process_time() - began < 20 * unit
