"""Facts about all Nodes of the cluster."""

from __future__ import annotations

import re
from itertools import islice

from antrea.agent.node.bootstrap import node_addresses
from antrea.apis.annotation import (
    KEEP_SSH,
    KEPT_EXTERNAL_IPS,
    LINK,
    MAX_EGRESS_IPS,
    SILENT_SUBNETS,
    TRANSPORT_ADDRESSES,
)
from antrea.apis.core import Node
from antrea.facts.family import one_per_family
from antrea.facts.member import MAX_KEPT, AgentNode, KeptAddress
from antrea.features.framework.address import canonical
from antrea.features.framework.admission import Watched
from antrea.features.framework.annotation import MAX_PORTS
from antrea.outside.log import klog

log = klog.logger(__name__)

OS, LINUX = "kubernetes.io/os", "linux"
MAX_SUBNETS = 64
"""Maximum number of subnets that are read from an annotation; a Node has at most 20."""
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
"""Key of the taint of a Node that the cluster autoscaler is about to delete."""
NOT_READY = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""Keys of the taints of a Node whose condition Ready is not True."""
SSH = 22
MAX_TRANSPORT = 8
"""Transport addresses that are read of a Node; an agent writes one for each family."""
_NUMBER = re.compile(r"[0-9]{1,9}")
_MAC = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")
"""MAC address of one host: neither multicast nor broadcast."""
_KEPT = re.compile(r"([0-9a-f.:]{2,45})=([0-9]{1,9})(:idle)?")


def cluster_node(node: Node) -> AgentNode | None:
    """Make the row of a Node that has a podCIDR and addresses; None for another."""
    meta, ips, cidrs = node.metadata, node_addresses(node), one_per_family(node.spec.pod_cidrs)
    if not ips or not cidrs:
        return None
    said = meta.annotations.get(TRANSPORT_ADDRESSES, "").split(",", MAX_TRANSPORT)[:MAX_TRANSPORT]
    # a Node may write any text there; it goes into the flows of all others
    ends = tuple(filter(None, (canonical(end.strip()) for end in said)))
    most = meta.annotations.get(MAX_EGRESS_IPS, "")
    if most and not _NUMBER.fullmatch(most):
        log.warning("Annotation is not a number", node=meta.name, annotation=MAX_EGRESS_IPS, value=most[:100])
    taints = {taint.key for taint in node.spec.taints}
    return AgentNode(
        name=meta.name,
        ips=ips,
        transport_ips=ends or ips,
        labels=tuple(sorted(meta.labels.items())),
        most_egress_ips=int(most) if _NUMBER.fullmatch(most) else None,
        pod_cidrs=cidrs,
        gossips=meta.labels.get(OS, LINUX) == LINUX,
        cordoned=node.spec.unschedulable,
        being_removed=bool(meta.deletion_timestamp) or TO_BE_DELETED in taints,
        not_ready=not taints.isdisjoint(NOT_READY),
        ssh_ports=ssh_ports(meta.name, meta.annotations.get(KEEP_SSH, "")),
        external_ips=node_addresses(node, "ExternalIP"),
        silent=tuple(filter(None, meta.annotations.get(SILENT_SUBNETS, "").split(",")))[:MAX_SUBNETS],
        kept=kept_addresses(meta.annotations.get(KEPT_EXTERNAL_IPS, "")),
        mac=card_mac(meta.annotations.get(LINK, "")),
    )


def card_mac(text: str) -> str:
    """Return the first word of the annotation that an agent writes, if it is a MAC address of one host."""
    word = text.partition(" ")[0]
    return word if _MAC.fullmatch(word) and word.strip("0:") else ""


def kept_addresses(text: str) -> tuple[KeptAddress, ...]:
    """Parse the annotation that an agent writes; a Node may write any text there, and entries of another form are ignored."""
    matches = (_KEPT.fullmatch(part) for part in islice(text.split(","), MAX_KEPT) if part)
    return tuple(
        KeptAddress(ip, int(match[2]), bool(match[3]))
        for match in matches
        if match and (ip := canonical(match[1]))
    )


def ssh_ports(node: str, text: str) -> tuple[int, ...]:
    """Parse the ports that a Node keeps open, from an annotation such as "true" (22) or "22,2222"; other values are ignored."""
    values = [word.strip() for word in text.split(",") if word.strip()] if len(text) <= MAX_PORTS else [""]
    ports = [
        SSH if word == "true" else int(word) for word in values if word == "true" or _NUMBER.fullmatch(word)
    ]
    if len(ports) != len(values) or not all(0 < port < 65536 for port in ports):
        log.warning("Annotation is not a list of ports", node=node, annotation=KEEP_SSH, value=text[:100])
        return ()
    return tuple(sorted(set(ports)))


CLUSTER_NODES = Watched("/api/v1/nodes", Node, AgentNode, cluster_node)
