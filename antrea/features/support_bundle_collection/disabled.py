"""SupportBundleCollections while the gate is off in the controller: none begins, and running ones do not continue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.support_bundle import SupportBundleCollection
from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.features.framework.admission import Watched
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.disabled import MANAGER, DisabledObject, switched_off
from antrea.features.support_bundle_collection.collection import (
    COMPLETED,
    GATE,
    PATH,
    STARTED,
    open_collection,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts


class DisabledCollection(DisabledObject, frozen=True):
    """A SupportBundleCollection that is not complete."""


def disabled_collection(stored: SupportBundleCollection) -> DisabledCollection | None:
    """Make the row; None if it is complete, and its results stay."""
    if open_collection(stored) is None:
        return None
    return DisabledCollection(f"{PATH}/{stored.metadata.name}", stored.metadata.generation)


def stopped_collection(_: Facts, collection: DisabledCollection) -> Iterator[Status]:
    """Yield the status of a stopped collection, which begins again when the gate is on."""
    yield Status(
        path=collection.path,
        kind="SupportBundleCollection",
        manager=MANAGER,
        conditions=(switched_off(STARTED, GATE), switched_off(COMPLETED, GATE)),
    )


FEATURES = (
    ControllerFeature(
        name="SupportBundleCollection disabled",
        watched=(
            Watched(PATH, SupportBundleCollection, DisabledCollection, disabled_collection, optional=True),
        ),
        units=(Unit(DisabledCollection, stopped_collection),),
        gate=GATE,
    ),
)
