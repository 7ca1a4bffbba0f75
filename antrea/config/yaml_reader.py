"""Reads YAML that others wrote: no number to the base of 60, no tag but the plain ones and, from strangers, no alias.

A line of `1:1:1:...` is one number of a hundred thousand digits to YAML 1.1, nested brackets cost the square of their
number, and aliases of aliases stand for more than any memory holds. Go's readers, which upstream uses, know no base of 60.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, ScalarNode

MAX_DEPTH = 64
"""Collections inside each other; no object of the API needs half of it."""
_PLAIN = ("null", "bool", "int", "float", "str", "seq", "map")
_NUMBER = re.compile(r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)\Z")
_FRACTION = re.compile(
    r"([-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|\.[0-9][0-9_]*([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))|\.(nan|NaN|NAN))\Z"
)
_NUMBERS = {"tag:yaml.org,2002:int": _NUMBER, "tag:yaml.org,2002:float": _FRACTION}


class _Reader(yaml.CSafeLoader):
    """Reader of an administrator's or the user's own document: aliases are resolved."""


class _UntrustedReader(_Reader):
    """Reader of a document that anybody may have sent: aliases are refused."""

    def flatten_mapping(self, node: MappingNode) -> None:
        """Raises YAMLError for `<<`."""
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, "merges (<<) are not taken", key.start_mark
                )

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Raises YAMLError for a key that is there twice: readers differ in which of the two counts."""
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        if len(mapping) != len(node.value):
            raise yaml.constructor.ConstructorError(None, None, "a key is there twice", node.start_mark)
        return mapping


def _number(loader: Any, node: ScalarNode) -> int | float:
    """Raises YAMLError for what only an explicit tag calls a number."""
    pattern = _NUMBERS[node.tag]
    if not pattern.match(node.value):
        raise yaml.constructor.ConstructorError(
            None, None, f"no number: {node.value[:20]!r}", node.start_mark
        )
    made: int | float = (
        loader.construct_yaml_int(node) if pattern is _NUMBER else loader.construct_yaml_float(node)
    )
    return made


_Reader.yaml_constructors = {
    tag: maker
    for tag, maker in yaml.CSafeLoader.yaml_constructors.items()
    if tag is None or tag.rpartition(":")[2] in _PLAIN
}
_Reader.yaml_implicit_resolvers = {
    first: [
        (tag, _NUMBERS.get(tag, pattern)) for tag, pattern in rows if tag != "tag:yaml.org,2002:timestamp"
    ]
    for first, rows in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
for _tag in _NUMBERS:
    _Reader.add_constructor(_tag, _number)


def own_document(text: str | bytes) -> Any:
    """A document of the user of this process. Raises YAMLError, ValueError, RecursionError."""
    return yaml.load(text, Loader=_Reader)  # noqa: S506 (made from a safe one)


def strangers_document(text: str | bytes) -> Any:
    """A document of an untrusted source. Raises YAMLError, ValueError."""
    depth = 0
    for event in yaml.parse(text, Loader=_Reader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.constructor.ConstructorError(None, None, "aliases are not taken")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            problem = f"more than {MAX_DEPTH} collections inside each other"
            raise yaml.constructor.ConstructorError(None, None, problem)
    return yaml.load(text, Loader=_UntrustedReader)  # noqa: S506 (made from a safe one)
