"""SupportBundleCollections that have failed or cannot begin: the doctor of the whole cluster reads their statuses."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from antrea.antctl.doctor.state import Finding
from antrea.antctl.request import ErrorResponse, Server, ask
from antrea.apis.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CHECK = "support-bundles"
PATH = "/apis/crd.antrea.io/v1alpha1/supportbundlecollections"
MOST = 20
"""Findings; the last one counts the rest."""


def bundle_collections(kubernetes: Server) -> list[Finding]:
    """That they cannot be listed is a finding, that there is no such kind is none."""
    try:
        items: list[Any] = ask(kubernetes, PATH, {})["items"]
    except ErrorResponse as why:
        if why.status == 404:
            return []
        text = f"SupportBundleCollection: cannot be listed: {why.format_message()}"
        return [Finding("", "unknown", CHECK, text, "")]
    found = list(islice((one for item in items for one in _judged(item)), MOST + 1))
    if len(found) > MOST:
        found[MOST:] = [
            Finding("", "warning", CHECK, f"there are more than {MOST} of them", "kubectl get sbc")
        ]
    return found


def _judged(item: Mapping[str, Any]) -> Iterator[Finding]:
    name = item["metadata"]["name"]
    conditions = {one.get("type"): one for one in item.get("status", {}).get("conditions", ())}
    begun, failed = (conditions.get(kind, {}) for kind in ("Started", "CollectionFailure"))
    if not conditions:
        words = "nothing acts on it: antrea-controller has not read it"
        repair = "antctl get featuregates"
    elif failed.get("status") == "True":
        words = f"not all bundles are at the file server: {one_line(failed.get('message', ''))}"
        repair = f"kubectl describe sbc {name}"
    elif begun.get("status") == "False" and begun.get("reason") != "Conflict":
        words = f"cannot begin: {one_line(begun.get('message', ''))}"
        repair = f"kubectl describe sbc {name}"
    else:
        return
    yield Finding("", "warning", CHECK, f"SupportBundleCollection {name}: {words}", repair)
