"""Finding of `antctl doctor`: no port is left for Pods."""

from __future__ import annotations

from antrea.features.framework.doctor import EDIT_CONFIGURATION, ConditionCheck

CONDITIONS = (ConditionCheck("node-port-local", "NodePortLocalPortsExhausted", "error", EDIT_CONFIGURATION),)
