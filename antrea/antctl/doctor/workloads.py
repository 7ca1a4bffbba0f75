"""Annotations for Pods on the objects that create the Pods, where they have no effect.

The controller reports them by Events while gate L7FlowExporter is on, and watches none of these kinds while it is off.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from antrea.antctl.doctor.state import Finding
from antrea.antctl.request import ErrorResponse, Server, ask
from antrea.apis.core import OnlyMetadata
from antrea.apis.shown import one_line
from antrea.decoding import decode_tree
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.features.l7_flow_export.controller import AnnotatedWorkload

CHECK: Final = "l7-export"
MAX_FINDINGS: Final = 20
"""Findings; the last one counts the rest."""
PAGE: Final = 500
MAX_PAGES: Final = 20
"""Pages that are read of a kind."""
METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def workloads(kubernetes: Server) -> list[Finding]:
    """Findings of all kinds. Raises Failure."""
    from antrea.features.l7_flow_export.controller import WORKLOADS  # noqa: PLC0415 (start-up time: imports the engine)

    found = list(islice((one for kind in WORKLOADS for one in _of_kind(kubernetes, kind)), MAX_FINDINGS + 1))
    if len(found) > MAX_FINDINGS:
        found[MAX_FINDINGS:] = [
            Finding("", "warning", CHECK, f"there are more than {MAX_FINDINGS} of them", "")
        ]
    return found


def _of_kind(kubernetes: Server, kind: type[AnnotatedWorkload]) -> Iterator[Finding]:
    """Find such annotations on objects of a kind. A failed or too long list is a finding; a kind that does not exist is none."""
    from antrea.features.l7_flow_export.controller import annotated, no_effect  # noqa: PLC0415 (start-up time)

    query = {"limit": str(PAGE)}
    for _ in range(MAX_PAGES):
        try:
            page = ask(kubernetes, kind.path(), query, accept=METADATA)
            rows = decode_tree(page.get("items") or [], list[OnlyMetadata], kind.path())
        except (ErrorResponse, Invalid) as error:
            if isinstance(error, ErrorResponse) and error.status == 404:
                return
            yield Finding("", "error", CHECK, one_line(f"{kind.kind}: cannot be listed: {error}"), "")
            return
        for row in filter(None, (annotated(kind, one) for one in rows)):
            text = f"{kind.kind} {row.key}: {no_effect(kind)}"
            repair = f"kubectl -n {row.namespace} edit {kind.plural} {row.name}"
            yield Finding("", "warning", CHECK, text, repair)
        query["continue"] = _following(page)
        if not query["continue"]:
            return
    text = f"{kind.kind}: there are more than {PAGE * MAX_PAGES}, of which no more are looked at"
    yield Finding("", "error", CHECK, text, "")


def _following(page: dict[str, Any]) -> str:
    return str(page.get("metadata", {}).get("continue") or "")
