"""Field and label selectors of a request.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/{field-selectors,labels}/
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

_SET = re.compile(r"(?P<key>\S+)\s+(?P<how>in|notin)\s*\((?P<values>[^()]*)\)", re.IGNORECASE)
_EQUAL = re.compile(r"(?P<key>[^\s=!<>(),]+)\s*(?P<how>==|=|!=|<|>)\s*(?P<value>[^\s=!<>(),]*)")
_EXISTS = re.compile(r"(?P<not>!?)\s*(?P<key>[^\s=!<>(),]+)")


def field_terms(selector: str) -> list[tuple[str, bool, str]]:
    """Terms as field, whether it must equal (or differ), value. Raises ValueError."""
    terms = []
    for term in _split(selector):
        for sign, equal in (("!=", False), ("==", True), ("=", True)):
            field, operator, value = _cut(term, sign)
            if operator:
                terms.append((field.strip(), equal, _unescaped(value)))
                break
        else:
            raise ValueError(f"invalid selector: '{selector}'; can't understand '{term}'")
    return terms


def _split(selector: str) -> list[str]:
    return [term for term in re.split(r"(?<!\\),", selector) if term]


def _cut(term: str, sign: str) -> tuple[str, bool, str]:
    field, operator, value = term.partition(sign)
    return field, bool(operator), value


def _unescaped(value: str) -> str:
    return re.sub(r"\\([\\,=])", r"\1", value)


class Requirement(msgspec.Struct, frozen=True):
    """One term of a label selector: among `values` (or only there, if None), or, with `negative`, not."""

    key: str
    values: frozenset[str] | None
    negative: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """An object without the label is matched by negative terms alone."""
        if self.key not in labels:
            return self.negative
        return (self.values is None or labels[self.key] in self.values) is not self.negative


def label_terms(selector: str) -> tuple[Requirement, ...]:
    """All of these must match. Raises ValueError."""
    terms = []
    rest = selector.strip()
    while rest:
        term = re.match(r"[^,(]*(\([^)]*\))?[^,]*", rest)
        text = term.group().strip() if term else ""
        rest = rest[len(term.group()) if term else 0 :].lstrip()
        terms.append(_requirement(text, selector))
        if rest:
            if not rest.startswith(",") or not rest[1:].strip():
                raise ValueError(
                    f"unable to parse requirement: {selector!r}: a comma is expected before {rest!r}"
                )
            rest = rest[1:].strip()
    return tuple(terms)


def _requirement(text: str, selector: str) -> Requirement:
    if match := _SET.fullmatch(text):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], values, match["how"].lower() == "notin")
    if match := _EQUAL.fullmatch(text):
        if match["how"] in "<>":
            raise ValueError("comparing labels as numbers is not supported")
        return Requirement(match["key"], frozenset([match["value"]]), match["how"] == "!=")
    if match := _EXISTS.fullmatch(text):
        return Requirement(match["key"], None, bool(match["not"]))
    raise ValueError(f"unable to parse requirement: {text!r} in {selector!r}")
