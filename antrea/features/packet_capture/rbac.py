"""Rights at kube-apiserver for PacketCaptures."""

from __future__ import annotations

from antrea.features.framework.rbac import CRD, READ, Rule

AGENT_RULES = (
    Rule("packets of Pods of this Node to capture, and the progress of that", CRD, ("packetcaptures",), READ),
    Rule("", CRD, ("packetcaptures/status",), ("patch",)),
)
CONTROLLER_RULES = (
    Rule("captures of packets of Pods that do not exist", CRD, ("packetcaptures",), READ),
    Rule("", CRD, ("packetcaptures/status",), ("patch",)),
)
