"""Which configuration is in effect: the newest that can work, its keys that wait for a restart, and what was refused.

Pure; antrea/outside/reload/configuration.py reads the file and the ConfigMap, and keeps the last good text on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from antrea.config.load import UnknownKey, parse, section_of
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

S = TypeVar("S", bound=msgspec.Struct)
G = TypeVar("G")


class InEffect(msgspec.Struct, Generic[S, G], frozen=True):
    """The configuration in effect, and messages for its user."""

    text: str
    """The file that it was read from."""
    config: S
    gates: G
    unknown: tuple[UnknownKey, ...] = ()
    pending: tuple[str, ...] = ()
    """Keys that have another value in `text`, which takes effect when the Pod restarts."""
    rejected: str = ""
    """Why a newer text is not in effect; empty if none was refused."""

    @property
    def same_for_the_program(self) -> tuple[S, G]:
        """Two of these that are equal here need no rebuilding."""
        return self.config, self.gates


def begin(kind: type[S], accept: Callable[[S], G], text: str) -> InEffect[S, G]:
    """The configuration of a program that starts. Raises Invalid."""
    loaded = parse(kind, text)
    return InEffect(text, loaded.config, accept(loaded.config), loaded.unknown)


def offer(now: InEffect[S, G], accept: Callable[[S], G], text: str) -> InEffect[S, G]:
    """Return the configuration in effect after the user wrote `text`: all of it, all but what needs a restart, or the previous one."""
    kind = type(now.config)
    fixed: tuple[str, ...] = getattr(kind, "fixed", ())
    try:
        loaded = parse(kind, text)
        accept(loaded.config)
        pending = tuple(key for key in differences(now.config, loaded.config) if key.split(".")[0] in fixed)
        held = _with_fields_of(loaded.config, now.config, fixed)
        return InEffect(text, held, accept(held), loaded.unknown, pending)
    except Invalid as error:
        return msgspec.structs.replace(now, rejected=str(error))


def differences(before: Any, after: Any, prefix: str = "") -> Iterator[str]:
    """Full paths of the keys whose values differ, such as antreaProxy.proxyAll."""
    for field in msgspec.structs.fields(before):
        old, new = getattr(before, field.name), getattr(after, field.name)
        path = prefix + field.encode_name
        section, mark = section_of(field.type)
        if old == new:
            continue
        if section and not mark:
            yield from differences(old, new, f"{path}.")
        else:
            yield path


def _with_fields_of(config: S, other: S, keys: tuple[str, ...]) -> S:
    names = {field.encode_name: field.name for field in msgspec.structs.fields(config)}
    return msgspec.structs.replace(config, **{names[key]: getattr(other, names[key]) for key in keys})


class Value(msgspec.Struct, frozen=True, rename="camel"):
    """One line of `antctl get config`."""

    key: str
    value: Any
    """Value in effect."""
    origin: str
    """`default`, or the file that sets it."""
    pending: str = ""
    """The newest file's value, if that waits for a restart; JSON."""


def values(now: InEffect[Any, Any]) -> list[Value]:
    """Every key that a program reads, in the order of its file."""
    kind = type(now.config)
    newest = parse(kind, now.text).config
    return list(_values(now.config, kind(), newest, kind.file, ""))


def _values(config: Any, default: Any, newest: Any, file: str, prefix: str) -> Iterator[Value]:
    for field in msgspec.structs.fields(config):
        mine, plain, said = (getattr(settings, field.name) for settings in (config, default, newest))
        path = prefix + field.encode_name
        section, mark = section_of(field.type)
        if section and not mark:
            yield from _values(mine, plain, said, file, f"{path}.")
            continue
        waits = "" if mine == said else msgspec.json.encode(said).decode()
        yield Value(path, mine, "default" if mine == plain else file, waits)
