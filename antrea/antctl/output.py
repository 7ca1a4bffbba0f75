"""Output as table, json, yaml or raw, in upstream's layout (pkg/antctl/output/output.go)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from antrea.antctl.failure import Failure
from antrea.apis.shown import shown_lines
from antrea.features.framework.command import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.features.framework.command import Column

FORMATS = "json|table|yaml|raw"


def render(answer: Any, form: str, columns: Sequence[Column], *, ordered: bool) -> str:
    """`answer` in the format `form`, ending with a newline. Raises Failure for an unknown format."""
    if form == "json":
        return _escaped(json.dumps(answer, indent=2, ensure_ascii=False)) + "\n"
    if form == "yaml":
        return yaml_of(answer)
    if form == "raw":
        return shown_lines(raw(answer)) + "\n"
    if form != "table":
        raise Failure(f"unsupported format type: {form}")
    if not columns:
        return yaml_of(answer)
    return table(answer if isinstance(answer, list) else [answer], columns, ordered=ordered)


def echo(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print text at once, to stderr if `err`; what it quotes of others moves no terminal."""
    click.echo(shown_lines(text), nl=nl, err=err)


def _escaped(text: str) -> str:
    """JSON whose characters that would move a terminal, such as C1 control characters, are escapes of JSON."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1]
        for character in text
    )


def yaml_of(answer: Any) -> str:
    """Format as sigs.k8s.io/yaml does: keys sorted, two spaces."""
    if isinstance(answer, dict) and all(_plain(text) for row in answer.items() for text in row):
        # such as versions, which every script asks for first: without YAML's library (start-up time)
        return "".join(f"{key}: {answer[key]}\n" for key in sorted(answer)) or "{}\n"
    from antrea.antctl.yaml_text import text_of  # noqa: PLC0415 (start-up time)

    return text_of(answer)


def _plain(text: Any) -> bool:
    """Whether this is a string that YAML reads as the string it is: a version, or a name in camel case."""
    return isinstance(text, str) and bool(re.fullmatch(r"v\d[\w.+-]*|[a-z]{5,}[A-Z]\w+", text, re.ASCII))


def raw(answer: Any) -> str:
    """Format as Go prints values with %v."""
    if isinstance(answer, dict):
        return "{" + " ".join(raw(value) for value in answer.values()) + "}"
    if isinstance(answer, list):
        return "[" + " ".join(raw(value) for value in answer) + "]"
    if answer is None:
        return "<nil>"
    return str(answer).lower() if isinstance(answer, bool) else str(answer)
