"""Objects whose metadata names a fault, such as an annotation without effect: nothing else of them is read."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from antrea.antctl.doctor.state import Finding
from antrea.antctl.request import ErrorResponse, Server, ask
from antrea.apis.core import OnlyMetadata
from antrea.apis.shown import one_line
from antrea.decoding import decode_tree
from antrea.errors import Invalid
from antrea.features import FEATURES
from antrea.features.framework.doctor import MetadataCheck
from antrea.features.framework.plug import declared

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_FINDINGS: Final = 20
"""Findings; the last one counts the rest."""
PAGE: Final = 500
MAX_PAGES: Final = 20
"""Pages that are read of a kind."""
METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def _by_check() -> dict[str, list[MetadataCheck]]:
    rows: dict[str, list[MetadataCheck]] = {}
    for row in chain.from_iterable(declared(FEATURES, "doctor", MetadataCheck, "METADATA_CHECKS").values()):
        rows.setdefault(row.check, []).append(row)
    return rows


CHECKS: Final[Mapping[str, Sequence[MetadataCheck]]] = _by_check()
"""Kinds that features declare, by the name of the check."""


def metadata(kubernetes: Server, check: str) -> list[Finding]:
    """Findings of all kinds of a check. Raises Failure."""
    findings = list(
        islice((row for kind in CHECKS[check] for row in _of_kind(kubernetes, kind)), MAX_FINDINGS + 1)
    )
    if len(findings) > MAX_FINDINGS:
        findings[MAX_FINDINGS:] = [
            Finding("", "warning", check, f"there are more than {MAX_FINDINGS} of them", "")
        ]
    return findings


def _of_kind(kubernetes: Server, kind: MetadataCheck) -> Iterator[Finding]:
    """Yield findings of one kind, also where objects cannot be listed or are too many; a missing kind has none."""
    query = {"limit": str(PAGE)}
    for _ in range(MAX_PAGES):
        try:
            page = ask(kubernetes, kind.path, query, accept=METADATA)
            rows = decode_tree(page.get("items") or [], list[OnlyMetadata], kind.path)
        except (ErrorResponse, Invalid) as error:
            if isinstance(error, ErrorResponse) and error.status == 404:
                return
            yield Finding("", "error", kind.check, one_line(f"{kind.kind}: cannot be listed: {error}"), "")
            return
        for row in rows:
            if fault := kind.judge(row):
                meta = row.metadata
                text = f"{kind.kind} {meta.namespace}/{meta.name}: {fault}"
                repair = f"kubectl -n {meta.namespace} edit {kind.plural} {meta.name}"
                yield Finding("", "warning", kind.check, text, repair)
        query["continue"] = _following(page)
        if not query["continue"]:
            return
    text = f"{kind.kind}: there are more than {PAGE * MAX_PAGES}, of which no more are looked at"
    yield Finding("", "error", kind.check, text, "")


def _following(page: dict[str, Any]) -> str:
    return str(page.get("metadata", {}).get("continue") or "")
