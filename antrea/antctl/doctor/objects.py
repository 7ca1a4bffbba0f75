"""Objects whose status names a fault: the doctor of the whole cluster reads what agents and controller wrote.

A feature declares its kinds in module `doctor` of its folder.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from antrea.antctl.doctor.state import Finding
from antrea.antctl.request import ErrorResponse, Server, ask
from antrea.apis.shown import one_line
from antrea.features import FEATURES
from antrea.features.framework.doctor import ObjectCheck
from antrea.features.framework.plug import declared, merged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

MAX_FINDINGS: Final = 20
"""Findings of a kind; the last one counts the rest."""
KINDS: Final[Mapping[str, ObjectCheck]] = merged(
    "check of objects",
    (
        {row.check: row}
        for row in chain.from_iterable(declared(FEATURES, "doctor", ObjectCheck, "OBJECT_CHECKS").values())
    ),
)
"""Kinds that features declare, by the name of the check."""


def objects(kubernetes: Server, gated: Collection[tuple[str, str]]) -> Iterator[Finding]:
    """Findings of all kinds; that nothing acts on an object of `gated`, a kind and a name, has a line with its gate. Raises Failure."""
    for kind in KINDS.values():
        rows = _of_kind(kubernetes, kind, gated)
        findings = list(islice(rows, MAX_FINDINGS + 1))
        if len(findings) > MAX_FINDINGS:
            text = f"there are more than {MAX_FINDINGS} of them"
            findings[MAX_FINDINGS:] = [
                Finding("", "warning", kind.check, text, f"kubectl get {kind.plural} -A")
            ]
        yield from findings


def _of_kind(kubernetes: Server, kind: ObjectCheck, gated: Collection[tuple[str, str]]) -> Iterator[Finding]:
    """Find objects of a kind with faults. A failed list is a finding; a kind that does not exist is none."""
    try:
        items: list[Any] = ask(kubernetes, kind.path, kind.query)["items"]
    except ErrorResponse as error:
        if error.status != 404:
            text = f"{kind.kind}: cannot be listed: {error.format_message()}"
            yield Finding("", "error", kind.check, text, "")
        return
    for item in items:
        meta = item["metadata"]
        space = meta.get("namespace", "")
        name = f"{space}/{meta['name']}" if space else meta["name"]
        where = f"-n {space} " if space else ""
        describe = f"kubectl {where}describe {kind.plural} {meta['name']}"
        for row in kind.judge(item):
            if row.waits and (kind.kind, name) in gated:
                continue
            text = f"{kind.kind} {name}: {one_line(row.finding)}"
            yield Finding("", row.severity, kind.check, text, row.repair or describe)
