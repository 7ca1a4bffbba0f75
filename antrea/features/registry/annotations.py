"""Every annotation of Antrea, of all features: its kinds of objects, its values, and its gate."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from antrea.apis import annotation as names
from antrea.config.shape import seconds
from antrea.features.framework.idle_request import AnnotationRule

if TYPE_CHECKING:
    from collections.abc import Callable

POD, NAMESPACE, NODE, SERVICE = "Pod", "Namespace", "Node", "Service"
EGRESS, MONITOR = "Egress.crd.antrea.io", "NodeLatencyMonitor.crd.antrea.io"
ANTREA_POLICIES = ("ClusterNetworkPolicy.crd.antrea.io", "NetworkPolicy.crd.antrea.io")
FILE_SENDERS = ("PacketCapture.crd.antrea.io", "SupportBundleCollection.crd.antrea.io")
KUBERNETES_POLICIES = (
    "NetworkPolicy.networking.k8s.io",
    "AdminNetworkPolicy.policy.networking.k8s.io",
    "BaselineAdminNetworkPolicy.policy.networking.k8s.io",
    "ClusterNetworkPolicy.policy.networking.k8s.io",
)
POLICIES = (*ANTREA_POLICIES, *KUBERNETES_POLICIES)
BOOLEANS: Final = ("1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False", "")
_PORTS = re.compile(r"\s*(true|[0-9]{1,5})(\s*,\s*(true|[0-9]{1,5}))*\s*")


def _among(*values: str, lower: bool = False) -> Callable[[str], bool]:
    return lambda text: (text.strip().lower() if lower else text.strip()) in values


def _is_boolean(text: str) -> bool:
    return text in BOOLEANS


def _is_duration(text: str) -> bool:
    try:
        return seconds(text) > 0
    except ValueError:
        return False


def _is_count(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9]{1,3}", text)) and int(text) <= 255


def _are_ports(text: str) -> bool:
    return bool(_PORTS.fullmatch(text)) and all(
        word.strip() == "true" or 0 < int(word) < 65536 for word in text.split(",")
    )


_FAILBACK: Final = ("immediate", "when-idle", "never", "")
_FAILBACKS: Final = "immediate, when-idle or never"
_NO_IPAM: Final = "addresses come from the Node's Pod CIDRs"
_EXTERNAL: Final = "ServiceExternalIP"
ANNOTATIONS: tuple[AnnotationRule, ...] = (
    AnnotationRule(names.IP_POOLS, (POD, NAMESPACE), "AntreaIPAM", instead=_NO_IPAM),
    AnnotationRule(names.POD_IPS, (POD,), "AntreaIPAM", instead=_NO_IPAM),
    AnnotationRule(
        names.L7_EXPORT, (POD, NAMESPACE), "L7FlowExporter", "ingress, egress or both",
        _among("ingress", "egress", "both", lower=True), reported="L7ExportInvalid", instead="no requests are exported",
    ),
    AnnotationRule(
        names.LOAD_BALANCER_MODE, (SERVICE,), "LoadBalancerModeDSR", "nat or dsr", _among("nat", "dsr", "", lower=True),
        needs_gate=_among("dsr", lower=True), instead="connections are translated, as with nat",
    ),
    AnnotationRule(names.CONSISTENT_CHOICE, (SERVICE,), "AntreaProxy", "true or false", _is_boolean),
    AnnotationRule(names.EXTERNAL_IP_POOL, (SERVICE,), _EXTERNAL, instead="the Service gets no external IP"),
    AnnotationRule(names.ALLOW_SHARED_IP, (SERVICE,), _EXTERNAL, "true or false", _is_boolean),
    AnnotationRule(names.PREFERRED_FOR_SERVICE, (SERVICE,), _EXTERNAL),
    AnnotationRule(names.FAILBACK_FOR_SERVICE, (SERVICE,), _EXTERNAL, _FAILBACKS, _among(*_FAILBACK)),
    AnnotationRule(
        names.PORT_LOCAL_ENABLED, (SERVICE,), "NodePortLocal", "true or false", lambda text: text in ("true", "false"),
        needs_gate=lambda text: text == "true", instead="its Pods get no ports of their Nodes",
    ),
    AnnotationRule(names.PREFERRED_NODES, (EGRESS,), "Egress"),
    AnnotationRule(names.FAILBACK, (EGRESS,), "Egress", _FAILBACKS, _among(*_FAILBACK)),
    AnnotationRule(names.LOST_CONNECTIONS, (EGRESS,), "Egress", "continue or reset", _among("continue", "reset", "")),
    AnnotationRule(names.MAX_EGRESS_IPS, (NODE,), "Egress", "a number from 0 to 255", _is_count),
    AnnotationRule(names.KEEP_SSH, (NODE,), "NodeNetworkPolicy", "true, or ports separated by commas", _are_ports),
    AnnotationRule(names.ENABLE_LOGGING, (NAMESPACE,), expected="true or false", understands=_is_boolean),
    AnnotationRule(names.ON_DENY, POLICIES, expected=names.FLUSH, understands=lambda text: text in (names.FLUSH, "")),
    AnnotationRule(
        names.ENFORCEMENT, (*POLICIES, NAMESPACE), expected=f"{names.AUDIT} or {names.ENFORCE}",
        understands=lambda text: text in (names.AUDIT, names.ENFORCE), reported="EnforcementUnknown",
        reported_on=KUBERNETES_POLICIES,
    ),
    AnnotationRule(names.AUDITED_RULES, POLICIES),
    AnnotationRule(
        names.CONFIRM_WITHIN, ANTREA_POLICIES, "AntreaPolicy", "a duration such as 60s", _is_duration, reported="admission",
    ),
    AnnotationRule(names.CONFIRMED, ANTREA_POLICIES, "AntreaPolicy", "a generation", lambda text: text.strip().isdecimal()),
    AnnotationRule(
        names.ACCEPT_ANY_HOST_KEY, FILE_SENDERS, expected="true or false", understands=_among("true", "false", ""),
        instead="nothing is sent to an SFTP server of an unknown key",
    ),
    AnnotationRule(
        names.LATENCY_THRESHOLD, (MONITOR,), "NodeLatencyMonitor", "a duration such as 5ms", _is_duration,
    ),
)  # fmt: skip
BY_NAME = {rule.name: rule for rule in ANNOTATIONS}
if len(BY_NAME) != len(ANNOTATIONS):
    raise ValueError("an annotation has two rules")
WRITTEN: frozenset[str] = frozenset(
    (
        names.TRANSPORT_ADDRESSES,
        names.LINK,
        names.SILENT_SUBNETS,
        names.KEPT_EXTERNAL_IPS,
        names.PORT_LOCAL,
        names.GATES_IN_EFFECT,
        names.STATS_EPOCH,
        names.STATS_ACCOUNT,
        names.STATS_SERIAL,
    )
)
"""Annotations that programs write; users ask for nothing with them."""
