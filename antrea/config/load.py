"""Reads a configuration file leniently where upstream is lenient (unknown keys) and strictly where it matters (types)."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator, Mapping, Sequence  # noqa: TC003 (msgspec reads annotations)
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, get_args, get_origin

import msgspec
import yaml

from antrea.config.gates import GATE_NAMES
from antrea.config.yaml_reader import own_document
from antrea.decoding import decode_tree, guarded
from antrea.errors import Invalid

if TYPE_CHECKING:
    from pathlib import Path

    from msgspec.structs import FieldInfo

S = TypeVar("S", bound=msgspec.Struct)

_AT = re.compile(r"^(?P<why>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
SECTION = "featureGates"
MAX_WRONG = 10
"""Wrong values that one refusal names; an Event has room for about as many."""
_BY_LOWER = {name.lower(): name for name in GATE_NAMES}


def gate_meant(key: str, value: object) -> str:
    """The path of the gate that a key beside `featureGates` was meant to be; empty if it was none.

    Names of gates are capitalized and have a boolean; keys of the files are not, so that of both the gate is meant.
    """
    if not isinstance(value, bool):
        return ""
    if (name := _BY_LOWER.get(key.lower())) is None and key[:1].isupper():
        name = next(iter(difflib.get_close_matches(key, GATE_NAMES, n=1, cutoff=0.75)), None)
    return f"{SECTION}.{name}" if name else ""


class UnknownKey(msgspec.Struct, frozen=True):
    """A key that no program reads, because it is misspelt, misplaced or of another release."""

    path: str
    """Where it stands, such as antreaProxy.proxyall."""
    nearest: str = ""
    """Full path of the known key that was probably meant; empty if none is near."""

    @property
    def sentence(self) -> str:
        """For a log line and an Event: what is wrong and what would be right."""
        if not self.nearest:
            return f"unknown key {self.path} is ignored"
        section, _, key = self.nearest.rpartition(".")
        if section and key == self.path.rpartition(".")[2]:
            return f"unknown key {self.path} is ignored: {key} belongs under {section}"
        return f"unknown key {self.path} is ignored: did you mean {self.nearest}?"


class Loaded(msgspec.Struct, Generic[S], frozen=True):
    """A configuration with its defaults filled in, and messages for its user."""

    config: S
    unknown: tuple[UnknownKey, ...]


def read(path: Path) -> str:
    """The text of a file. Raises Invalid if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(str(path), f"cannot be read: {getattr(error, 'strerror', None) or error}") from error


def parse(kind: type[S], text: str) -> Loaded[S]:
    """Read the YAML `text`. A null or an empty string means the default, as upstream reads them.

    Raises Invalid if it is not YAML, or with all values that are wrong.
    """
    file: str = getattr(kind, "file", kind.__name__)
    try:
        tree = guarded(file, own_document, text)
    except Invalid as error:
        if isinstance(error.__cause__, yaml.YAMLError):
            raise Invalid(file, f"not YAML: {_place(error.__cause__)}") from error
        # what the reader itself raises: a day that no month has, a number without digits
        raise Invalid(file, f"a value cannot be read: {error.why}") from error
    reading = _Reading(kind)
    config = _decoded(kind, _clean(kind, {} if tree is None else tree, "", reading), reading)
    if config is None or reading.wrong:
        raise _refusal(file, reading.wrong)
    return Loaded(config, tuple(reading.unknown))


def _refusal(file: str, wrong: Sequence[Invalid]) -> Invalid:
    """Return one error that names all wrong values; the first one is its path."""
    first, *others = wrong
    named = [str(error) for error in others[: MAX_WRONG - 1]]
    more = [f"{len(wrong) - MAX_WRONG} more values are wrong"] if len(wrong) > MAX_WRONG else []
    return Invalid(f"{file}: {first.path}" if first.path else file, "; ".join([first.why, *named, *more]))


def _decoded(kind: type[S], tree: Any, reading: _Reading) -> S | None:
    """Return the configuration of `tree`, without the values of a wrong type, which are noted; None if it is not a mapping."""
    while True:
        try:
            return decode_tree(tree, kind, "")
        except Invalid as error:
            match = _AT.match(error.why)
            path, reason = (match["path"] or "", match["why"]) if match else ("", error.why)
            reading.wrong.append(Invalid(path, _plain(reason)))
            if not _take_away(tree, path):
                return None


def _take_away(tree: Any, path: str) -> bool:
    """Take the key away that a value of a wrong type is in. Return whether it was there."""
    *sections, key = path.partition("[")[0].split(".")
    for section in sections:
        tree = tree.get(section) if isinstance(tree, dict) else None
    return isinstance(tree, dict) and tree.pop(key, None) is not None


def _place(why: yaml.YAMLError) -> str:
    mark = getattr(why, "problem_mark", None)
    problem = getattr(why, "problem", None) or str(why).splitlines()[0]
    return f"{problem} in line {mark.line + 1}, column {mark.column + 1}" if mark else problem


def _plain(reason: str) -> str:
    """msgspec's sentence with YAML's names of types."""
    for theirs, ours in (
        ("`object`", "a mapping"),
        ("`array`", "a list"),
        ("`str`", "a text"),
        ("Object ", ""),
        ("`", ""),
    ):
        reason = reason.replace(theirs, ours)
    return reason[0].lower() + reason[1:]


class _Reading:
    """All keys of a configuration, to find what an unknown one was meant to be, and what is wrong with a file of it."""

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self.paths = tuple(known_paths(kind))
        self.renamed: Mapping[str, str] = getattr(kind, "renamed", {})
        self.unknown: list[UnknownKey] = []
        self.wrong: list[Invalid] = []

    def nearest(self, path: str, value: Any) -> str:
        if path in self.renamed:
            return self.renamed[path]
        if SECTION in self.paths and (gate := gate_meant(path.rpartition(".")[2], value)):
            return gate
        section, _, key = re.sub(r"\[\d+\]", "[]", path).rpartition(".")
        here = [known for known in self.paths if known.rpartition(".")[0] == section]
        return _like(key, here) or _like(key, self.paths)


def _like(key: str, paths: Sequence[str]) -> str:
    """The path whose last part is most like `key`; empty if none is, or if several sections have that key."""
    by_name: dict[str, list[str]] = {}
    for path in paths:
        by_name.setdefault(path.rpartition(".")[2].lower(), []).append(path)
    close = difflib.get_close_matches(key.lower(), by_name, n=1, cutoff=0.75)
    return by_name[close[0]][0] if close and len(by_name[close[0]]) == 1 else ""


@functools.cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[FieldInfo, ...]:
    """Return the fields of a section; a cache, since msgspec takes 0.4 ms each time to evaluate all annotations."""
    return msgspec.structs.fields(kind)


def known_paths(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    """Full paths of all keys of `kind`, such as antreaProxy.proxyAll and secondaryNetwork.ovsBridges[].bridgeName."""
    for field in _fields_of(kind):
        yield prefix + field.encode_name
        section, mark = section_of(field.type)
        if section:
            yield from known_paths(section, f"{prefix}{field.encode_name}{mark}.")


def section_of(kind: Any) -> tuple[type[msgspec.Struct] | None, str]:
    """The Struct inside the type of a field, if any, and "[]" if the field is a list of them."""
    inner, mark = (get_args(kind)[0], "[]") if get_origin(kind) is tuple else (kind, "")
    return (inner, mark) if isinstance(inner, type) and issubclass(inner, msgspec.Struct) else (None, "")


def _clean(kind: Any, value: Any, path: str, reading: _Reading) -> Any:
    """`value` as msgspec wants it: unset and unknown keys left out, enums spelled as declared, shapes checked."""
    meta: list[msgspec.Meta] = []
    if get_origin(kind) is Annotated:
        kind, *meta = get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _clean_section(kind, value, path, reading)
    if get_origin(kind) is tuple and isinstance(value, list):
        inner = get_args(kind)[0]
        return [_clean(inner, v, f"{path}[{i}]", reading) for i, v in enumerate(value)]
    if get_origin(kind) is dict and isinstance(value, dict):
        inner = get_args(kind)[1]
        return {str(k): _of_type(inner, v, f"{path}.{k}") for k, v in value.items() if v is not None}
    if get_origin(kind) is Literal and isinstance(value, str):
        return _spelled(get_args(kind), value, path)
    for part in meta:
        shape = (part.extra or {}).get("shape")
        if shape and isinstance(value, str) and not shape.accepts(value):
            raise Invalid(path, f"{value!r} is not {shape.name}")
    return value


def _clean_section(kind: type[msgspec.Struct], value: Any, path: str, reading: _Reading) -> Any:
    if not isinstance(value, dict):
        gate = gate_meant(path, value) if SECTION in reading.paths else ""
        if gate:
            raise Invalid(path, f"expected a mapping, got bool: the feature gate is {gate}")
        return value
    fields = {field.encode_name: field for field in _fields_of(kind)}
    cleaned: dict[str, Any] = {}
    for key, inner in value.items():
        at = f"{path}.{key}" if path else str(key)
        if key not in fields:
            reading.unknown.append(UnknownKey(at, reading.nearest(at, inner)))
        elif not _unset(fields[key].type, inner):
            try:
                cleaned[key] = _clean(fields[key].type, inner, at, reading)
            except Invalid as error:
                reading.wrong.append(error)
    return cleaned


def _unset(kind: Any, value: Any) -> bool:
    if value is None or value == "":
        return True
    if get_origin(kind) is not Annotated:
        return False
    return any(
        type(value) is type(unset) and value == unset
        for part in get_args(kind)[1:]
        for unset in (part.extra or {}).get("unset", ())
    )


def _of_type(kind: type, value: Any, path: str) -> Any:
    if type(value) is not kind:
        raise Invalid(path, f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _spelled(choices: tuple[Any, ...], value: str, path: str) -> Any:
    for choice in choices:
        if isinstance(choice, str) and choice.lower() == value.lower():
            return choice
    raise Invalid(path, f"{value!r} is none of {', '.join(str(c) for c in choices if c != '')}")
