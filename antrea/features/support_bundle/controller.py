"""SupportBundleCollections in the controller: what agents report on those that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.meta import Status
from antrea.features.framework.controller_feature import ControllerFeature

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.framework.query import Asked


def _noted(_: Facts, asked: Asked) -> Status:
    """The status of a collection that is gone, as all are now, is not kept."""
    del asked
    return Status(status="Success", code=201)


FEATURE = ControllerFeature(
    name="SupportBundleCollection",
    gate="SupportBundleCollection",
    answers={("supportbundlecollections", "status", "create"): _noted},
)
FEATURES = (FEATURE,)
