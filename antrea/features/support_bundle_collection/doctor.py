"""Findings of `antctl doctor`: SupportBundleCollections that failed, cannot begin, or that nothing has read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.features.framework.doctor import (
    CRD,
    SHOW_GATES,
    ObjectCheck,
    ObjectFinding,
    conditions_of,
    message_of,
    with_status,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def collection_findings(item: Mapping[str, Any]) -> Iterator[ObjectFinding]:
    """Yield why a collection is incomplete or has not begun; one that waits for another has no finding."""
    conditions = conditions_of(item)
    begun = with_status(conditions, "Started", "False")
    if not conditions:
        text = "nothing acts on it: antrea-controller has not read it"
        yield ObjectFinding("warning", text, SHOW_GATES, waits=True)
    elif failed := with_status(conditions, "CollectionFailure", "True"):
        yield ObjectFinding("warning", f"not all bundles are at the file server: {message_of(failed)}")
    elif begun and begun.get("reason") != "Conflict":
        yield ObjectFinding("warning", f"cannot begin: {message_of(begun)}")


OBJECT_CHECKS = (
    ObjectCheck(
        "support-bundles",
        f"{CRD}/v1alpha1/supportbundlecollections",
        "SupportBundleCollection",
        "supportbundlecollections",
        collection_findings,
    ),
)
