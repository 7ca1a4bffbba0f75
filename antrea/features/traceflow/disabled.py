"""Traceflows while the gate Traceflow is off in the controller: none begins, and running ones do not continue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.features.framework.admission import Watched
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.disabled import MANAGER, DisabledObject, StoredObject
from antrea.features.traceflow.trace import FAILED, GATE, SUCCEEDED, TRACEFLOWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

WHY = f"the feature gate {GATE} is off in antrea-controller.conf"


class Outcome(msgspec.Struct, frozen=True):
    """The part of a status that shows whether a Traceflow is over."""

    phase: str = ""
    reason: str = ""


class StoredTraceflow(StoredObject, frozen=True):
    """A Traceflow that nothing acts on."""

    status: Outcome = Outcome()


class DisabledTraceflow(DisabledObject, frozen=True):
    """A Traceflow that is not over."""


def disabled_traceflow(stored: StoredTraceflow) -> DisabledTraceflow | None:
    """Make the row; None if it is over, and its results stay."""
    if stored.status.phase in (SUCCEEDED, FAILED) and stored.status.reason != WHY:
        return None
    return DisabledTraceflow(f"{TRACEFLOWS}/{stored.metadata.name}", stored.metadata.generation)


def failed_traceflow(_: Facts, trace: DisabledTraceflow) -> Iterator[Status]:
    """Yield the status of a failed Traceflow: nothing traces it any more; without its tag agents end it."""
    yield Status(
        path=trace.path,
        kind="Traceflow",
        manager=MANAGER,
        fields=(("phase", FAILED), ("reason", WHY), ("dataplaneTag", 0)),
    )


FEATURES = (
    ControllerFeature(
        name="Traceflow disabled",
        watched=(Watched(TRACEFLOWS, StoredTraceflow, DisabledTraceflow, disabled_traceflow),),
        units=(Unit(DisabledTraceflow, failed_traceflow),),
        gate=GATE,
    ),
)
