"""YAML as Go writes it (go.yaml.in/yaml/v3 with an indent of 2), so that scripts and eyes find what they know."""

from __future__ import annotations

import re
from typing import Any

import yaml

_LOOKS_OTHER = re.compile(r"[yYnN]|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0[bo][0-9]+")
"""Texts that readers of some YAML take for a truth value or a number, and PyYAML does not."""
_BREAKS = frozenset("\r\x85\u2028\u2029")
"""Line breaks that readers turn into others."""


class _Dumper(yaml.SafeDumper):
    """Double quotes where a text looks like another type, single ones where its characters need them."""

    def choose_scalar_style(self) -> str:
        style = str(super().choose_scalar_style())
        looks_other = isinstance(self.event, yaml.ScalarEvent) and not self.event.implicit[0]
        return '"' if style == "'" and looks_other else style


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    if _LOOKS_OTHER.fullmatch(text) or not _BREAKS.isdisjoint(text):
        style: str | None = '"'
    else:
        style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def text_of(answer: Any) -> str:
    """`answer`, made of what JSON has, with sorted keys."""
    text = yaml.dump(
        answer, Dumper=_Dumper, sort_keys=True, default_flow_style=False, width=2**31, allow_unicode=True
    )
    # PyYAML ends a document that is one scalar with "..."
    return str(text).removesuffix("...\n")
