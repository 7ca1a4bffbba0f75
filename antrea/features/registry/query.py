"""All queries that features answer, by resource, subresource and verb."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.features import FEATURES
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.plug import declared, merged

if TYPE_CHECKING:
    from antrea.features.framework.query import Answers

_DECLARED = declared(FEATURES, "controller", ControllerFeature)


ANSWERS: Answers = merged(
    "answer to", (feature.answers for features in _DECLARED.values() for feature in features)
)
