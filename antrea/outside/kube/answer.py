"""Responses of kube-apiserver to lists and watches, decoded object by object; one that cannot be decoded becomes an `Odd`.

Values that nest too deeply for the decoder, which would refuse all of the text around them, are cut out of it: kube-apiserver
stores 10,000 levels in fields that a CRD does not know, msgspec decodes about 1,000.
"""

from __future__ import annotations

import re
import secrets
from typing import Final, Generic, TypeVar

import msgspec

from antrea.apis.core import ListMeta, ObjectMeta, Status
from antrea.decoding import decode_json
from antrea.errors import Invalid, Refused, Unavailable
from antrea.outside.kube.backoff import TooManyRequests

MAX_LEVELS: Final = 500
"""Levels that are kept of a text that nests too deeply; objects of known kinds have fewer than 50."""
_MARK: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
"""A whole string, or what there is of the last one, or a bracket outside of strings."""


def cut(text: bytes, value: bytes) -> bytes:
    """Return this JSON with `value` in place of each array and object below the level MAX_LEVELS."""
    kept: list[bytes] = []
    level = begin = 0
    for match in _MARK.finditer(text):
        mark = match[0]
        if mark in (b"[", b"{"):
            level += 1
            if level == MAX_LEVELS + 1:
                kept += (text[begin : match.start()], value)
        elif mark in (b"]", b"}"):
            level -= 1
            if level == MAX_LEVELS:
                begin = match.end()
    if level <= MAX_LEVELS:
        kept.append(text[begin:])
    return b"".join(kept)


T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One answer to a list."""

    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] | None = ()  # null: a list of metadata without any


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """All objects there are: at the start of a watch, and whenever it had to start again."""

    objects: tuple[T, ...]


class Odd(msgspec.Struct, frozen=True):
    """An object that cannot be read, and why."""

    name: str
    why: str
    namespace: str = ""
    uid: str = ""
    version: str = ""
    kind: str = ""
    api_version: str = ""
    gone: bool = False
    """It has been deleted."""

    @property
    def full_name(self) -> str:
        """Name of the object, in its Namespace."""
        return f"{self.namespace}/{self.name}"


class Some(msgspec.Struct, Generic[T], frozen=True):
    """Some of all objects there are, page by page: `first` begins a new list and makes pages before it void."""

    objects: tuple[T, ...]
    first: bool
    last: bool
    version: str = ""
    """resourceVersion of the whole list."""
    odd: tuple[Odd, ...] = ()
    """Objects of the page that cannot be decoded."""


class Put(msgspec.Struct, Generic[T], frozen=True):
    """This object is new or has changed."""

    object: T


class Drop(msgspec.Struct, Generic[T], frozen=True):
    """This object is gone; `object` is its last state."""

    object: T


class _WatchLine(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _OnlyMeta(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class _RawPage(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: tuple[msgspec.Raw, ...] | None = ()
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")


class NoCollection(Refused):
    """404 to a list: the API server serves no such kind."""


class Gone(Unavailable):
    """410: what we ask to continue is no longer kept; list again."""


class Forbidden(Refused):
    """403: the user has not the right that the request takes."""


def change_of(line: bytes, kind: type[T], path: str) -> tuple[Put[T] | Drop[T] | Odd | None, str]:
    """One line of a watch, and its resourceVersion; None is a bookmark. Raises Unavailable, Refused."""
    event, mark = _cut_to_fit(line, _WatchLine, path)
    if event.type == "ERROR":
        status = decoded(event.object, Status, path)
        raise_for(status.code, bytes(event.object), path)
        raise Unavailable(f"{path}: {status.message}")
    try:
        _check_whole(event.object, mark, path)
        version = decode_json(event.object, _OnlyMeta, path).metadata.resource_version
        if event.type == "BOOKMARK":
            return None, version
        object_of_event = decode_json(event.object, kind, path)
    except Invalid as error:
        odd = odd_object(event.object, error.why, gone=event.type == "DELETED")
        if not odd.name:
            raise Unavailable(f"{path}: answer is not understood: {error.why}") from error
        return odd, odd.version
    return (Drop(object_of_event) if event.type == "DELETED" else Put(object_of_event)), version


def page_of(answer: bytes, kind: type[T], path: str) -> tuple[ListMeta, tuple[T, ...], tuple[Odd, ...]]:
    """Metadata of a list, its objects, and those that cannot be decoded. Raises Unavailable."""
    try:
        page = decode_json(answer, Page[kind], path)  # type: ignore[valid-type]
    except Invalid:
        pass
    else:
        return page.metadata, page.items or (), ()
    raw, mark = _cut_to_fit(answer, _RawPage, path)
    if mark and not any(mark in bytes(item) for item in raw.items or ()):
        raise Unavailable(f"{path}: a value beside the items nests more than {MAX_LEVELS} levels deep")
    objects: list[T] = []
    odd: list[Odd] = []
    for item in raw.items or ():
        try:
            _check_whole(item, mark, path)
            objects.append(decode_json(item, kind, path))
        except Invalid as error:
            odd.append(odd_object(item, error.why, raw.kind.removesuffix("List"), raw.api_version))
            if not odd[-1].name:
                raise Unavailable(f"{path}: answer is not understood: {error.why}") from error
    return raw.metadata, tuple(objects), tuple(odd)


def _cut_to_fit(text: bytes, kind: type[T], path: str) -> tuple[T, bytes]:
    """Decode; if the text nests too deeply, without what does, in whose place is the mark that is returned. Raises Unavailable."""
    try:
        return decode_json(text, kind, path), b""
    except Invalid as error:
        if not isinstance(error.__cause__, RecursionError):
            raise Unavailable(f"{path}: answer is not understood: {error.why}") from error
    # chosen now, so that no object can have it
    mark = secrets.token_hex(16).encode()
    return decoded(cut(text, b'"%b"' % mark), kind, path), mark


def _check_whole(item: msgspec.Raw, mark: bytes, path: str) -> None:
    """Raises Invalid for an object of which something was cut."""
    if mark and mark in bytes(item):
        raise Invalid(path, f"a value nests more than {MAX_LEVELS} levels deep")


def odd_object(
    item: msgspec.Raw, why: str, kind: str = "", api_version: str = "", *, gone: bool = False
) -> Odd:
    """Return what can be read of an invalid object; `kind` and `api_version` are those of its list, whose items do not have them."""
    try:
        decoded = decode_json(item, object, "object")
    except Invalid:
        decoded = None
    tree = decoded if isinstance(decoded, dict) else {}
    meta = tree.get("metadata")
    meta = meta if isinstance(meta, dict) else {}

    def text(value: object, otherwise: str = "") -> str:
        return value if isinstance(value, str) else otherwise

    return Odd(
        text(meta.get("name"), text(tree.get("name"))), why, text(meta.get("namespace")), text(meta.get("uid")),
        text(meta.get("resourceVersion")), text(tree.get("kind"), kind),
        text(tree.get("apiVersion"), api_version), gone,
    )  # fmt: skip


def decoded(answer: bytes | msgspec.Raw, kind: type[T], path: str) -> T:
    """Decode the body of a response; raises Unavailable, with the path, if it is not of this kind."""
    try:
        return decode_json(answer, kind, path)
    except Invalid as error:
        raise Unavailable(f"{path}: answer is not understood: {error.why}") from error


def raise_for(status: int, answer: bytes, path: str) -> None:
    """Raise the error of a response's status, with the server's message; return for status 2xx."""
    if 200 <= status < 300:
        return
    message = message_of(answer) or f"{path}: answer {status}"
    if status == 410:
        raise Gone(message)
    if status == 429:
        raise TooManyRequests(message)
    if status < 200 or status >= 500:
        raise Unavailable(message)
    if status == 403:
        raise Forbidden([path], message)
    raise Refused([path], message)


def message_of(answer: bytes) -> str:
    """Return the message of a Status object, or the beginning of any other body."""
    try:
        return decode_json(answer, Status, "status").message
    except Invalid:
        return answer.decode(errors="replace").strip()[:200]
