"""SupportBundleCollection in the agent: a collection of this Node or machine is a bundle to send, and then a report.

parity: pkg/agent/supportbundlecollection/support_bundle_controller.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import controlplane as cp
from antrea.engine import Unit
from antrea.facts.node import ThisNode
from antrea.features.framework.agent_feature import EVERYWHERE, AgentFeature
from antrea.features.framework.controlplane_watch import ObjectKind
from antrea.features.support_bundle_collection.collection import GATE, PLURAL
from antrea.features.support_bundle_collection.task import (
    BundleReport,
    BundleResult,
    BundleTask,
    BundleUpload,
    bundle_task,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts


def bundle(facts: Facts, task: BundleTask) -> Iterator[BundleUpload | BundleReport]:
    """Yield upload and report, as long as the controller has the collection."""
    yield BundleUpload(task)
    node, result = facts.get(ThisNode), facts.get(BundleResult, task.name)
    if node is not None and result is not None and result.uid == task.uid:
        yield BundleReport(task.name, task.uid, node.name, result.error)


FEATURES = (
    AgentFeature(
        name="SupportBundleCollection",
        gate=GATE,
        watches=(ObjectKind(PLURAL, BundleTask, cp.SupportBundleCollection, bundle_task, saved=False),),
        units=(Unit(BundleTask, bundle),),
        runs_on=EVERYWHERE,
    ),
)
