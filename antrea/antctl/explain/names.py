"""The domain names by which an agent lets rules match the destination of a packet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.antctl.explain.switch import SECONDS, ask_agent
from antrea.antctl.failure import Failure
from antrea.apis.shown import one_line
from antrea.explain.address import ip
from antrea.explain.packet import pod_name

if TYPE_CHECKING:
    from antrea.antctl.explain.source import Source
    from antrea.antctl.request import Server
    from antrea.apis.network_policy_api.v1alpha1 import AdminNetworkPolicy
    from antrea.apis.network_policy_api.v1alpha2 import ClusterNetworkPolicy
    from antrea.explain.packet import Packet
    from antrea.explain.policy import Native

    Admin = AdminNetworkPolicy | ClusterNetworkPolicy

PODS, NODE = "pods", "node"
"""Sources of domain names: DNS answers to Pods, and DNS answers to the Node itself."""


def named(kubernetes: Server, source: Source, packet: Packet, *, insecure: bool) -> tuple[Packet, str]:
    """The packet with those names if any rule is on names, and why they could not be had; given ones are left."""
    sender = packet.source
    node = sender.pod.spec.node_name if sender.pod else sender.host
    if packet.destination.names or not node or not _has_names(source):
        return packet, ""
    kubernetes = kubernetes._replace(seconds=kubernetes.seconds or SECONDS)
    try:
        query = {"scope": PODS, "pod": pod_name(sender.pod)} if sender.pod else {"scope": NODE}
        rows = ask_agent(kubernetes, node, "/fqdncache", query, insecure=insecure) or ()
        known: dict[str, set[str]] = {}
        untrusted: dict[str, set[str]] = {}
        for row in rows:
            names_by_ip = untrusted if row.get("server") else known
            names_by_ip.setdefault(ip(row["ipAddress"]), set()).add(str(row["fqdnName"]))
    except (Failure, ValueError, LookupError, TypeError, AttributeError) as error:
        lack = error.message if isinstance(error, Failure) else f"its answer cannot be read: {error}"
        return packet, f"domain names, by which rules match: Node {node} could not be asked: {one_line(lack)}"
    names = {address: tuple(sorted(sources)) for address, sources in known.items()}
    there = msgspec.structs.replace(
        packet.destination, names=names.get(packet.destination.ip, ()), names_of=node
    )
    untrusted_names = tuple((address, tuple(sorted(sources))) for address, sources in untrusted.items())
    named_packet = msgspec.structs.replace(
        packet, destination=there, names=tuple(names.items()), own_names=untrusted_names
    )
    return named_packet, ""


def _has_names(source: Source) -> bool:
    """Whether any policy has a rule on names."""
    objects = source.objects
    policies: tuple[Native, ...] = (*objects.cluster_policies, *objects.policies)
    antrea_rules = (rule for policy in policies for rule in policy.spec.egress)
    if any(peer.fqdn for rule in antrea_rules for peer in rule.to):
        return True
    admins: tuple[Admin, ...] = (*objects.admin_policies, *objects.tiered_policies)
    admin = (rule for admin in admins for rule in admin.spec.egress)
    return any(getattr(peer, "domain_names", ()) for rule in admin for peer in rule.to)
