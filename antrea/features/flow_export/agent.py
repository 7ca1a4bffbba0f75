"""Records of this Node's connections, as far as the agent's engine is concerned: the flows that send denied packets are those of policies.

The rest is work of the part in antrea/agent/flow_export.
"""

from __future__ import annotations

from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.proxy.service import SERVICE_WATCH

GATE = "FlowExporter"
FEATURES = (AgentFeature(name="FlowExporter", gate=GATE, watched=(SERVICE_WATCH,)),)
