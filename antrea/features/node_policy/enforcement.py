"""Node policies as reports on policies see them."""

from __future__ import annotations

from antrea.features.network_policy.agent.enforcement import Enforcement
from antrea.features.node_policy.guard_report import prevented_cuts
from antrea.features.node_policy.service_address import untranslated_rules
from antrea.features.node_policy.unrealized import node_failures

ENFORCEMENTS = (Enforcement(node_failures, prevented_cuts, untranslated_rules),)
