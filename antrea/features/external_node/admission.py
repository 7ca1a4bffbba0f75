"""Webhooks that warn of machines outside the cluster while the feature is off."""

from __future__ import annotations

from antrea.features.external_node.crd import CRDS
from antrea.features.framework.admission import feature_warning

WEBHOOKS = tuple(feature_warning(crd) for crd in reversed(CRDS))
