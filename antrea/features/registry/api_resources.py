"""Every resource of the aggregated API, by group; features fill the stores of these rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.apis import controlplane as cp
from antrea.apis import controlplane_report as report
from antrea.apis import stats, system
from antrea.apis.meta import ObjectMetadata
from antrea.apis.resource import CREATED_AT, NAME, Column, Members, Resource, Subresource, Verb

if TYPE_CHECKING:
    from collections.abc import Iterable

    import msgspec

WATCHED: tuple[Verb, ...] = ("get", "list", "watch")
READ: tuple[Verb, ...] = ("get", "list")
GET: tuple[Verb, ...] = ("get",)
CREATE: tuple[Verb, ...] = ("create",)


def _controlplane(
    plural: str, singular: str, struct: type[Any], verbs: tuple[Verb, ...], **more: Any
) -> Resource:
    return Resource(cp.GROUP, cp.VERSION, plural, singular, struct, verbs, missing=singular, **more)


def _members(patch: type[cp.AppliedToGroupPatch] | type[cp.AddressGroupPatch], *, by_node: bool) -> Members:
    return Members(
        lambda meta, added, removed: patch(
            metadata=meta, added_group_members=added, removed_group_members=removed
        ),
        by_node,
    )


def _egress_patch(meta: ObjectMetadata, added: tuple[Any, ...], removed: tuple[Any, ...]) -> msgspec.Struct:
    return cp.EgressGroupPatch(
        name=meta.name,
        uid=meta.uid,
        added_group_members=added or None,
        removed_group_members=removed or None,
    )


def _gone_policy(_: Resource, policy: cp.NetworkPolicy) -> cp.NetworkPolicy:
    meta = policy.metadata
    short = ObjectMetadata(name=meta.name, uid=meta.uid, generation=meta.generation)
    return cp.NetworkPolicy(metadata=short, source_ref=policy.source_ref)


def _blank_collection(metadata: ObjectMetadata) -> cp.SupportBundleCollection:
    return cp.SupportBundleCollection(
        metadata=metadata,
        expired_at=None,
        file_server=cp.BundleFileServer(url=""),
        authentication=cp.BundleServerAuthConfiguration(),
    )


CONTROLPLANE = (
    _controlplane(
        "addressgroups", "addressgroup", cp.AddressGroup, WATCHED,
        members=_members(cp.AddressGroupPatch, by_node=False),
    ),
    _controlplane(
        "appliedtogroups", "appliedtogroup", cp.AppliedToGroup, WATCHED,
        members=_members(cp.AppliedToGroupPatch, by_node=True),
    ),
    _controlplane("clustergroupmembers", "clustergroupmembers", report.ClusterGroupMembers, GET, stored=False, columns=()),
    _controlplane(
        "egressgroups", "egressgroup", cp.EgressGroup, WATCHED, members=Members(_egress_patch, by_node=True)
    ),
    _controlplane(
        "groupassociations", "groupassociation", report.GroupAssociation, GET, namespaced=True, stored=False,
        columns=(),
    ),
    _controlplane("groupmembers", "groupmembers", report.GroupMembers, GET, namespaced=True, stored=False, columns=()),
    _controlplane("ipgroupassociations", "ipgroupassociation", report.IPGroupAssociation, GET, stored=False, columns=()),
    _controlplane(
        "networkpolicies", "networkpolicy", cp.NetworkPolicy, WATCHED, gone=_gone_policy,
        subresources=(Subresource("status", report.NetworkPolicyStatus, CREATE),),
    ),
    _controlplane(
        "networkpolicyevaluation", "networkpolicyevaluation", report.NetworkPolicyEvaluation, CREATE, stored=False,
        columns=(),
    ),
    _controlplane("nodestatssummaries", "nodestatssummary", report.NodeStatsSummary, CREATE, stored=False, columns=()),
    _controlplane(
        "supportbundlecollections", "supportbundlecollection", cp.SupportBundleCollection, WATCHED,
        make=_blank_collection,
        subresources=(Subresource("status", report.SupportBundleCollectionStatus, CREATE),),
    ),
)  # fmt: skip


def _stats(plural: str, singular: str, struct: type[Any], verbs: tuple[Verb, ...], **more: Any) -> Resource:
    return Resource(stats.GROUP, stats.VERSION, plural, singular, struct, verbs, **more)


def _counted(whose: str, *names: str) -> tuple[Column, ...]:
    """Make columns for the totals of these names."""
    return (NAME, *(_total(name, whose) for name in names), CREATED_AT)


def _total(name: str, whose: str) -> Column:
    return Column(
        name.capitalize(), "integer", lambda row: getattr(row.traffic_stats, name), "",
        f"The {name} count hit by the {whose}.",
    )  # fmt: skip


POLICY_TOTALS = ("sessions", "packets", "bytes")


def _pods(row: stats.MulticastGroup, shown: int = 3) -> str:
    names = ",".join(f"{pod.namespace}/{pod.name}" for pod in row.pods[:shown])
    more = len(row.pods) - shown
    return f"{names} + {more} more..." if more > 0 else names or "<none>"


def duration(nanoseconds: int) -> str:
    """Format a duration as Go does: 0s, 5.837ms, 1m2.5s. Source: go.dev/pkg/time Duration.String."""
    if nanoseconds < 0:
        return f"-{duration(-nanoseconds)}"
    for unit, size in (("ns", 1), ("µs", 10**3), ("ms", 10**6)):
        if 0 < nanoseconds < size * 1000:
            return _decimal(nanoseconds, size) + unit
    minutes, rest = divmod(nanoseconds, 60 * 10**9)
    seconds = _decimal(rest, 10**9) + "s"
    if minutes < 60:
        return f"{minutes}m{seconds}" if minutes else seconds
    return f"{minutes // 60}h{minutes % 60}m{seconds}"


def _decimal(value: int, size: int) -> str:
    whole, rest = divmod(value, size)
    digits = len(str(size)) - 1
    fraction = f"{rest:0{digits}}".rstrip("0") if digits else ""
    return f"{whole}.{fraction}" if fraction else str(whole)


def _round_trips(row: stats.NodeLatencyStats) -> Iterable[int]:
    return (
        target.last_measured_rtt_nanoseconds
        for peer in row.peer_node_latency_stats
        for target in peer.target_ip_latency_stats
    )


def _average(row: stats.NodeLatencyStats) -> str:
    values = list(_round_trips(row))
    return duration(sum(values) // len(values) if values else 0)


STATS = (
    _stats(
        "antreaclusternetworkpolicystats", "antreaclusternetworkpolicystats",
        stats.AntreaClusterNetworkPolicyStats, READ, columns=_counted("Antrea ClusterNetworkPolicy", *POLICY_TOTALS),
    ),
    _stats(
        "antreanetworkpolicystats", "antreanetworkpolicystats", stats.AntreaNetworkPolicyStats, READ,
        namespaced=True, columns=_counted("Antrea NetworkPolicy", *POLICY_TOTALS),
    ),
    _stats(
        "egressstats", "egressstats", stats.EgressStats, READ, columns=_counted("Egress", "packets", "bytes")
    ),
    _stats(
        "multicastgroups", "multicastgroup", stats.MulticastGroup, READ,
        columns=(
            Column("Group", "string", lambda row: row.metadata.name, "name", "IP of multicast group."),
            Column("Pods", "string", _pods, "", "List of Pods that has joined the multicast group."),
        ),
    ),
    _stats(
        "networkpolicystats", "networkpolicystats", stats.NetworkPolicyStats, READ,
        namespaced=True, columns=_counted("K8s NetworkPolicy", *POLICY_TOTALS),
    ),
    _stats(
        "nodelatencystats", "nodelatencystats", stats.NodeLatencyStats, ("create", "delete", "get", "list"),
        columns=(
            Column("Node Name", "string", lambda row: row.metadata.name, "name", "Name of Node from which latency was measured."),
            Column(
                "Num Latency Entries", "integer", lambda row: len(row.peer_node_latency_stats), "int64",
                "Number of peers for which latency measurements are available.",
            ),
            Column("Avg Latency", "string", _average, "", "Average latency value across all peers."),
            Column(
                "Max Latency", "string", lambda row: duration(max(_round_trips(row), default=0)), "",
                "Largest latency value across all peers.",
            ),
        ),
    ),
)  # fmt: skip

SUPPORT_BUNDLES = Resource(
    system.GROUP, system.VERSION, "supportbundles", "supportbundle", system.SupportBundle,
    ("create", "delete", "get"), stored=False, columns=(),
    subresources=(Subresource("download", system.SupportBundle, GET),),
)  # fmt: skip
"""Resource that agents serve, too, each at its own port."""
SYSTEM = (
    Resource(
        system.GROUP, system.VERSION, "controllerinfos", "controllerinfo", system.AntreaControllerInfo, READ
    ),
    SUPPORT_BUNDLES,
)

RESOURCES: tuple[Resource, ...] = (*CONTROLPLANE, *STATS, *SYSTEM)
"""All resources, sorted by group and plural, as discovery lists them."""
