"""Annotations of policies."""

from __future__ import annotations

from antrea.apis import annotation as names
from antrea.decoding import is_number
from antrea.features.framework.annotation import NAMESPACE, is_boolean, is_duration
from antrea.features.framework.idle_request import AnnotationRule

ANTREA_POLICIES = ("ClusterNetworkPolicy.crd.antrea.io", "NetworkPolicy.crd.antrea.io")
KUBERNETES_POLICIES = (
    "NetworkPolicy.networking.k8s.io",
    "AdminNetworkPolicy.policy.networking.k8s.io",
    "BaselineAdminNetworkPolicy.policy.networking.k8s.io",
    "ClusterNetworkPolicy.policy.networking.k8s.io",
)
POLICIES = (*ANTREA_POLICIES, *KUBERNETES_POLICIES)
ANNOTATIONS: tuple[AnnotationRule, ...] = (
    AnnotationRule(names.ENABLE_LOGGING, (NAMESPACE,), expected="true or false", understands=is_boolean),
    AnnotationRule(names.ON_DENY, POLICIES, expected=names.FLUSH, understands=lambda text: text in (names.FLUSH, "")),
    AnnotationRule(
        names.ENFORCEMENT, (*POLICIES, NAMESPACE), expected=f"{names.AUDIT} or {names.ENFORCE}",
        understands=lambda text: text in (names.AUDIT, names.ENFORCE), reported="EnforcementUnknown",
        reported_on=KUBERNETES_POLICIES,
    ),
    AnnotationRule(names.AUDITED_RULES, POLICIES),
    AnnotationRule(
        names.CONFIRM_WITHIN, ANTREA_POLICIES, "AntreaPolicy", "a duration such as 60s", is_duration, reported="admission",
    ),
    AnnotationRule(names.CONFIRMED, ANTREA_POLICIES, "AntreaPolicy", "a generation", lambda text: is_number(text.strip(), 2**63 - 1)),
)  # fmt: skip
