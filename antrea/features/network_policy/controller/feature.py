"""Policies in the controller, put together: Kubernetes' own, always on, and Antrea's by their gate."""

from __future__ import annotations

from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.network_policy.controller import antrea_policy, kube_policy
from antrea.features.network_policy.controller.answers import ANSWERS

QUERIES = ControllerFeature(name="PolicyQueries", answers=ANSWERS)
FEATURES = (kube_policy.FEATURE, antrea_policy.FEATURE, QUERIES)
