"""Every webhook there is, and every collection that their decisions read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.features.egress import admission as egress
from antrea.features.external_ip_pool import admission as external_ip_pool
from antrea.features.feature_warning import WEBHOOKS as FEATURE_WARNINGS
from antrea.features.ip_pool import admission as ip_pool
from antrea.features.namespace_label import admission as namespace_label
from antrea.features.network_policy import admission as network_policy
from antrea.features.node_config import admission as node_config
from antrea.features.packet_capture import admission as packet_capture
from antrea.features.support_bundle import admission as support_bundle
from antrea.features.traceflow import admission as traceflow

if TYPE_CHECKING:
    from antrea.features.admission import Watched, Webhook

WEBHOOKS: tuple[Webhook, ...] = (
    *network_policy.WEBHOOKS,
    *namespace_label.WEBHOOKS,
    *external_ip_pool.WEBHOOKS,
    *egress.WEBHOOKS,
    *ip_pool.WEBHOOKS,
    *support_bundle.WEBHOOKS,
    *packet_capture.WEBHOOKS,
    *traceflow.WEBHOOKS,
    *node_config.WEBHOOKS,
    *FEATURE_WARNINGS,
)
WATCHED: tuple[Watched, ...] = (*network_policy.WATCHED, *external_ip_pool.WATCHED)
