"""The status of a SupportBundleCollection: its conditions by what Nodes reported.

parity: pkg/controller/supportbundlecollection/controller.go updateStatus, createInternalSupportBundleCollection. Upstream has no
condition for what cannot begin (no Secret, no Node), and a collection that expires after it has begun stays as it is.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.features.support_bundle_collection.collection import COLLECTED, COMPLETED, FAILURE, PATH, STARTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from antrea.features.support_bundle_collection.collection import NodeBundle, OpenCollection

MANAGER = "antrea-controller"
MAX_ERROR, MAX_ERRORS, MAX_NODES = 256, 8, 64
"""Maximum number of characters of one error, of errors, and of Nodes of each in a message."""
UNREPORTED = (
    "no report before the collection expired: is antrea-agent running, with the feature gate"
    " SupportBundleCollection, and connected to antrea-controller?"
)
NO_NODE = "no Node matches spec.nodes, and no ExternalNode spec.externalNodes"


class Outcome(msgspec.Struct, frozen=True):
    """The conditions of a collection."""

    conditions: tuple[Condition, ...]
    collected: int = 0
    desired: int = 0

    def is_complete(self) -> bool:
        """Whether nothing of it will change."""
        return self.conditions[-1].status == "True"

    def failure(self) -> Condition | None:
        """Condition that the user should read."""
        begins, _, failed, _ = self.conditions
        if failed.status == "True":
            return failed
        return begins if begins.status == "False" else None

    def status(self, row: OpenCollection) -> Status:
        """The entry of its status."""
        return Status(
            path=f"{PATH}/{row.name}",
            kind="SupportBundleCollection",
            manager=MANAGER,
            fields=(("collectedNodes", self.collected), ("desiredNodes", self.desired)),
            conditions=self.conditions,
        )


def waiting(reason: str, message: str, desired: int) -> Outcome:
    """Make the outcome of a collection that has not begun, and may still."""
    begins = Condition(STARTED, "False", reason=reason, message=message)
    others = (Condition(COLLECTED, "False"), Condition(FAILURE, "False"), Condition(COMPLETED, "False"))
    return Outcome((begins, *others), desired=desired)


def never_begun(reason: str, message: str) -> Outcome:
    """Make the outcome of a collection that has not begun, and will not."""
    begins = Condition(STARTED, "False", reason=reason, message=message)
    failed = Condition(FAILURE, "True", reason=reason, message=message)
    return Outcome((begins, Condition(COLLECTED, "False"), failed, Condition(COMPLETED, "True")))


def running(
    nodes: Sequence[str], reports: Iterable[NodeBundle], lacks: Sequence[str], *, expired: bool
) -> Outcome:
    """Make the outcome of a running collection; `lacks`: the part of its specification that no Node can do. When it expires,
    silence is a failure.
    """
    by_node = {report.node: report for report in reports}
    collected = [node for node in nodes if node in by_node and by_node[node].completed]
    silent = [node for node in nodes if node not in by_node]
    errors: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        report = by_node.get(node)
        if report is not None and not report.completed:
            errors[(report.error or "unknown error")[:MAX_ERROR]].append(node)
    if expired and silent:
        errors[UNREPORTED] = silent
        silent = []
    return Outcome(
        (
            Condition(STARTED, "True"),
            Condition(COLLECTED, "True" if collected else "False"),
            _failure(errors, lacks),
            _completed(silent),
        ),
        len(collected),
        len(nodes),
    )


def _failure(errors: dict[str, list[str]], lacks: Sequence[str]) -> Condition:
    failed = sum(map(len, errors.values()))
    if not failed and not lacks:
        return Condition(FAILURE, "False")
    if not failed:
        return Condition(FAILURE, "True", reason="NotCollected", message="; ".join(lacks))
    errors_shown = sorted(f'"{error}":[{_names(nodes)}]' for error, nodes in errors.items())
    more = [f"and {len(errors_shown) - MAX_ERRORS} more errors"] if len(errors_shown) > MAX_ERRORS else []
    message = f"Failed Agent count: {failed}, {', '.join([*errors_shown[:MAX_ERRORS], *more])}"
    return Condition(FAILURE, "True", reason="InternalError", message="; ".join([message, *lacks]))


def _completed(silent: Sequence[str]) -> Condition:
    if not silent:
        return Condition(COMPLETED, "True")
    return Condition(COMPLETED, "False", reason="Collecting", message=f"no report yet of: {_names(silent)}")


def _names(nodes: Sequence[str]) -> str:
    """Sort, as upstream has them."""
    more = [f"and {len(nodes) - MAX_NODES} more"] if len(nodes) > MAX_NODES else []
    return ", ".join([*sorted(nodes)[:MAX_NODES], *more])


def lacking(unknown: Sequence[str], machines: Sequence[str]) -> tuple[str, ...]:
    """Return names in its specification that no Node, and no ExternalNode, has."""
    nodes = (f"spec.nodes.nodeNames: no such Node: {_names(unknown)}",) if unknown else ()
    if not machines:
        return nodes
    return (*nodes, f"spec.externalNodes.nodeNames: no such ExternalNode: {_names(machines)}")
