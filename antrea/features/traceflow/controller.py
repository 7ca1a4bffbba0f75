"""Traceflows in the controller: all there are, for `antrea/features/traceflow/controller_part.py` to begin and to end."""

from __future__ import annotations

from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.traceflow.trace import ALL_TRACES, GATE

FEATURES = (ControllerFeature(name="Traceflow", watched=(ALL_TRACES,), gate=GATE),)
