"""Attributes of a request, as authorization sees it.

Source: k8s.io/apiserver/pkg/endpoints/request/requestinfo.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import msgspec

from antrea.apis.path import is_part
from antrea.outside.apiserver.selector import field_terms
from antrea.outside.apiserver.status import NO_RESOURCE, ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

EXCLUDE = "exclude"
"""The one parameter that may be there several times: health checks that do not count."""
_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}


LEVEL = "/loglevel"


class Attributes(msgspec.Struct, frozen=True):
    """`resource` is empty for paths that are not resources; then only `verb` (of HTTP) and `path` count.

    It is all that a request asks for: judging, answering and forwarding use nothing else.
    """

    verb: str
    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    """Values that a field selector requires of fields, each once."""

    @property
    def key(self) -> str:
        """The object's key in its store."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def resource_path(self) -> str:
        """The path of what was judged, written anew."""
        scope = ("namespaces", self.namespace) if self.namespace else ()
        resource_path = (
            (self.name, self.subresource) if self.subresource else (self.name,) if self._has_own_path else ()
        )
        parts = ("apis", self.group, self.version, *scope, self.resource, *resource_path)
        return "".join(f"/{quote(part, safe='')}" for part in parts)

    @property
    def _has_own_path(self) -> bool:
        return bool(self.name) and self.verb not in ("list", "watch", "deletecollection")


def attributes(method: str, raw_path: str, query: Mapping[str, str]) -> Attributes:
    """Return the attributes of a path as it was sent. Raises Answered: 400 for what two readers could read differently, 404 for what is too long."""
    # without a slash at the end, as it is served
    path = ("/" + "/".join(_segments(raw_path))).rstrip("/") or "/"
    if len(repeatable := [name for name, _ in query.items() if name != EXCLUDE]) != len(set(repeatable)):
        raise ApiError(400, "a parameter of the query is there twice")
    parts = [part for part in path.split("/") if part]
    if len(parts) < 4 or parts[0] != "apis":
        # upstream's antctl sets the level with a GET: who changes something needs the right to change it
        changes = path == LEVEL and query.get("level")
        return Attributes("put" if changes else method.lower(), path)
    _, group, version, *rest = parts
    verb = _VERBS.get(method, method.lower())
    watch = query.get("watch", "").lower() in ("true", "1") or (not query.get("watch", "x"))
    if rest[0] == "watch" and len(rest) > 1:
        # the old form of a watch, /apis/GROUP/VERSION/watch/RESOURCE
        watch, rest = True, rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        raise ApiError(404, NO_RESOURCE)
    resource, name, subresource, *_ = [*rest, "", "", ""]
    if method in ("GET", "HEAD") and not subresource:
        verb = "watch" if watch else "get" if name else "list"
    if method == "DELETE" and not name:
        verb = "deletecollection"
    fields: tuple[tuple[str, str], ...] = ()
    if verb in ("list", "watch", "deletecollection"):
        fields = _fields(query.get("fieldSelector", ""))
        name = _one_name(name, dict(fields).get("metadata.name", ""))
    return Attributes(verb, path, group, version, namespace, resource, name, subresource, fields)


def _segments(raw_path: str) -> list[str]:
    """Parts of a path, decoded once; an empty last one is a slash at the end. Raises Answered."""
    first, *parts = raw_path.split("/")
    segments = [unquote(part, errors="replace") for part in parts]
    inner = segments[:-1] if segments and not segments[-1] else segments
    if first or not segments or not all(map(is_part, inner)):
        raise ApiError(400, "the path has a part that is empty, a dot or two, or holds an escaped separator")
    return segments


def _fields(selector: str) -> tuple[tuple[str, str], ...]:
    """The terms of a field selector that something must equal. Raises Answered."""
    try:
        terms = field_terms(selector)
    except ValueError as error:
        raise ApiError(400, str(error)) from error
    equal = tuple((field, value) for field, is_equal, value in terms if is_equal)
    if len(dict(equal)) != len(equal):
        raise ApiError(400, f"invalid selector: '{selector}'; a field is there twice")
    return equal


def _one_name(named: str, selected: str) -> str:
    """The one name that path and selector allow, so that rules about single objects apply. Raises Answered."""
    if selected and not is_part(selected):
        raise ApiError(400, f"metadata.name: {selected[:253]!r} is not a name")
    if named and selected and named != selected:
        raise ApiError(400, "fieldSelector metadata.name doesn't match the requested name")
    return named or selected
