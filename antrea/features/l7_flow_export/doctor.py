"""Finding of `antctl doctor`: the engine that reads requests for flow records is down."""

from __future__ import annotations

from antrea.features.framework.doctor import ConditionCheck, repair_engine

CONDITIONS = (
    ConditionCheck("l7-engine", "L7FlowEngineMissing", "warning", repair_engine("antrea-l7-flow-engine")),
)
