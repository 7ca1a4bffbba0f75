"""What a request asks for, as authorization sees it.

Source: k8s.io/apiserver/pkg/endpoints/request/requestinfo.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.outside.aggregated.selector import field_terms

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}


class Attributes(msgspec.Struct, frozen=True):
    """`resource` is empty for paths that are no resources; then only `verb` (of HTTP) and `path` count."""

    verb: str
    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> str:
        """The object's key in its store."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def attributes(method: str, path: str, query: Mapping[str, str]) -> Attributes:
    """Of any path; nothing is refused here."""
    parts = [part for part in path.split("/") if part]
    if len(parts) < 4 or parts[0] != "apis":
        return Attributes(method.lower(), path)
    _, group, version, *rest = parts
    verb = _VERBS.get(method, method.lower())
    watch = query.get("watch", "").lower() in ("true", "1") or (not query.get("watch", "x"))
    if rest[0] == "watch" and len(rest) > 1:
        # the old form of a watch, /apis/GROUP/VERSION/watch/RESOURCE
        watch, rest = True, rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource, *_ = [*rest, "", "", ""]
    if method in ("GET", "HEAD") and not subresource:
        verb = "watch" if watch else "get" if name else "list"
    if method == "DELETE" and not name:
        verb = "deletecollection"
    if not name and verb in ("list", "watch", "deletecollection"):
        name = _named(query.get("fieldSelector", ""))
    return Attributes(verb, path, group, version, namespace, resource, name, subresource)


def _named(selector: str) -> str:
    """The one name that a field selector allows, so that rules about single objects apply."""
    try:
        terms = field_terms(selector)
    except ValueError:
        return ""
    return next((value for field, equal, value in terms if field == "metadata.name" and equal), "")
