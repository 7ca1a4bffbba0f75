"""All queries that features answer, by resource, subresource and verb."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.features import FEATURES
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.plug import declared

if TYPE_CHECKING:
    from antrea.features.framework.query import Answer, Answers

_DECLARED = declared(FEATURES, "controller", ControllerFeature)


def _answers() -> dict[tuple[str, str, str], Answer]:
    found: dict[tuple[str, str, str], Answer] = {}
    for features in _DECLARED.values():
        for feature in features:
            found |= feature.answers
    return found


ANSWERS: Answers = _answers()
