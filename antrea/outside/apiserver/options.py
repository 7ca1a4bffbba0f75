"""Options of a list or a watch in its query.

Source: k8s.io/apimachinery/pkg/apis/meta/internalversion/validation ValidateListOptions
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.decoding import is_number
from antrea.outside.apiserver.selector import Requirement, field_terms, label_terms
from antrea.outside.apiserver.status import ApiError
from antrea.outside.apiserver.watcher import Selection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.apis.resource import Resource
    from antrea.outside.apiserver.attributes import Attributes

_TRUE, _FALSE = ("true", "1", "t", ""), ("false", "0", "f")
MAX_SECONDS = 1 << 31


class Options(msgspec.Struct, frozen=True):
    """A checked query."""

    selection: Selection
    labels: tuple[Requirement, ...] = ()
    seconds: int | None = None
    """How long the client wants to watch."""
    bookmarks: bool = False
    """Whether bookmarks may come at any time."""
    mark_end: bool = False
    """Whether the bookmark is to be marked as the end of the initial events."""


def options(resource: Resource, attributes: Attributes, query: Mapping[str, str]) -> Options:
    """Raises Answered: 400 for what cannot be read, 422 for what does not go together."""
    watch = attributes.verb == "watch"
    bookmarks, initial = _flag(query, "allowWatchBookmarks"), _flag(query, "sendInitialEvents")
    _together(query, watch=watch, initial=initial)
    seconds = query.get("timeoutSeconds")
    if seconds is not None and not is_number(seconds, MAX_SECONDS):
        raise ApiError(400, f'timeoutSeconds: "{seconds[:20]}" is not a number of seconds')
    try:
        labels = label_terms(query.get("labelSelector", ""))
        node, namespace = _fields(resource, attributes, query.get("fieldSelector", ""))
    except ValueError as error:
        raise ApiError(400, str(error)) from error
    namespace = attributes.namespace or namespace
    name = attributes.name or None
    key = f"{namespace}/{name}" if namespace and name else name
    return Options(
        Selection(node, key, namespace or None),
        labels,
        int(seconds) if seconds else None,
        bookmarks=bool(bookmarks),
        mark_end=bool(bookmarks and initial),
    )


def _flag(query: Mapping[str, str], name: str) -> bool | None:
    given = query.get(name)
    if given is None:
        return None
    if given.lower() not in (*_TRUE, *_FALSE):
        raise ApiError(400, f'{name}: "{given}" is neither true nor false')
    return given.lower() in _TRUE


def _fields(resource: Resource, attributes: Attributes, selector: str) -> tuple[str | None, str]:
    """Node and Namespace that are asked for; `!=` selects nothing away, as upstream. Raises ValueError."""
    known = {"metadata.name", "metadata.namespace"}
    if "watch" in resource.verbs:
        known = {"metadata.name", "nodeName"}
    for field, _, _ in field_terms(selector):
        if field not in known:
            raise ValueError(f"field label not supported: {field}")
    fields = dict(attributes.fields)
    return fields.get("nodeName"), fields.get("metadata.namespace", "")


def _together(query: Mapping[str, str], *, watch: bool, initial: bool | None) -> None:
    match = query.get("resourceVersionMatch", "")
    if watch and initial is None:
        if match:
            _forbid(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
    elif watch:
        if match != "NotOlderThan":
            _forbid(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
    elif initial is not None:
        _forbid("sendInitialEvents", "sendInitialEvents is forbidden for list")
    elif match and not query.get("resourceVersion"):
        _forbid(
            "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
        )
    elif match not in ("", "Exact", "NotOlderThan"):
        raise _invalid(
            f'resourceVersionMatch: Unsupported value: "{match}": supported values: "Exact", "NotOlderThan"'
        )


def _forbid(field: str, why: str) -> None:
    raise _invalid(f"{field}: Forbidden: {why}")


def _invalid(why: str) -> ApiError:
    return ApiError(422, f'ListOptions.meta.k8s.io "" is invalid: {why}')
