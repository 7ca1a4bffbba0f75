"""Finding of `antctl doctor`: the engine that judges requests is down."""

from __future__ import annotations

from antrea.features.framework.doctor import ConditionCheck, repair_engine

CONDITIONS = (ConditionCheck("l7-engine", "L7EngineDown", "error", repair_engine("antrea-l7-engine")),)
