"""How each kind of crd.antrea.io, and of policy.networking.k8s.io, is served: names, scope, versions, columns, feature gates.

Source: upstream build/charts/antrea/crds/*.yaml; v1alpha2 of Egress and ExternalIPPool as in v1.15.1;
sigs.k8s.io/network-policy-api config/crd/experimental of v0.2.0, and of v0.1.7 for what v0.2.0 has no more.
"""

from __future__ import annotations

from antrea.apis.crd import (
    bgp,
    egress,
    external,
    flow_export,
    group,
    info,
    latency,
    network_policy,
    node_config,
    packet_capture,
    pool,
    support_bundle,
    tier,
    traceflow,
    traffic_control,
    v1alpha2,
)
from antrea.apis.crd.definition import Column, Crd, Version
from antrea.apis.network_policy_api import part, v1alpha1
from antrea.apis.network_policy_api import v1alpha2 as cluster_network_policy

ANTREA = {"app": "antrea"}
CONVERTED = {**ANTREA, "served-by": "antrea-controller"}
"""The controller puts its certificate authority into a CRD with these labels, which must have a conversion webhook."""
AGE = Column("Age", "date", ".metadata.creationTimestamp")
POLICY_COLUMNS = (
    Column("Tier", "string", ".spec.tier", "Tier of the policy."),
    Column("Priority", "number", ".spec.priority", "Place among the policies of the Tier.", format="float"),
    Column(
        "Desired Nodes",
        "number",
        ".status.desiredNodesRealized",
        "Nodes that should realize the policy.",
        format="int32",
    ),
    Column(
        "Current Nodes",
        "number",
        ".status.currentNodesRealized",
        "Nodes that have realized the policy.",
        format="int32",
    ),
    AGE,
    Column(
        "Audited",
        "string",
        '.status.conditions[?(@.type=="Audited")].status',
        "Whether the policy, or a rule of it, drops nothing and is only audited.",
        1,
    ),
)
EGRESS_COLUMNS = (
    Column("EgressIP", "string", ".status.egressIP", "Address that the traffic leaves with."),
    AGE,
    Column("Node", "string", ".status.egressNode", "Node that has the address."),
)
POOL_COLUMNS = (
    Column("Total", "integer", ".status.usage.total", "Addresses that the pool has."),
    Column("Used", "integer", ".status.usage.used", "Addresses that are taken."),
    AGE,
)
TRACE_COLUMNS = (
    Column("Phase", "string", ".status.phase", "How far it is."),
    Column("Source-Pod", "string", ".spec.source.pod", "Where the packet comes from.", 10),
    Column("Destination-Pod", "string", ".spec.destination.pod", "Where the packet goes.", 10),
    Column("Destination-IP", "string", ".spec.destination.ip", "Where the packet goes.", 10),
    Column("Live-Traffic", "boolean", ".spec.liveTraffic", "Whether the packet is of real traffic.", 10),
    Column("Dropped-Only", "boolean", ".spec.droppedOnly", "Whether only a dropped packet counts.", 10),
    Column("Timeout", "integer", ".spec.timeout", "Seconds until it fails.", 10),
    AGE,
)


def _capture(condition: str) -> str:
    return f'.status.conditions[?(@.type=="PacketCapture{condition}")].status'


CAPTURE_COLUMNS = (
    Column("Source-Pod", "string", ".spec.source.pod", "Where packets come from.", 10),
    Column("Destination-Pod", "string", ".spec.destination.pod", "Where packets go.", 10),
    Column("Source-IP", "string", ".spec.source.ip", "Where packets come from.", 10),
    Column("Destination-IP", "string", ".spec.destination.ip", "Where packets go.", 10),
    Column("Timeout", "integer", ".spec.timeout", "Seconds until it ends anyhow.", 10),
    AGE,
    Column("Captured-Packets", "integer", ".status.numberCaptured", "Packets so far."),
    Column("Started", "string", _capture("Started"), "Whether it has started."),
    Column("Complete", "string", _capture("Complete"), "Whether it has ended."),
    Column("Uploaded", "string", _capture("FileUploaded"), "Whether the file server has the file.", 10),
)


def _health(program: str) -> tuple[Column, ...]:
    path = f".{program.lower()}Conditions[?(@.type=='{program}Healthy')]"
    return (
        Column("Healthy", "string", f"{path}.status", "Whether it is well."),
        Column("Last Heartbeat", "date", f"{path}.lastHeartbeatTime", "When that was judged."),
        Column("Version", "string", ".version", "Version of the program.", 1),
    )


AGENT_COLUMNS = (
    *_health("Agent"),
    Column("Node", "string", ".nodeRef.name", "Node of the agent.", 1),
    Column("Num Pods", "integer", ".localPodNum", "Pods of the Node.", 2),
    Column("Subnets", "string", ".nodeSubnets", "Where its Pods' addresses come from.", 2),
)
CONTROLLER_COLUMNS = (
    *_health("Controller"),
    Column("Connected Agents", "integer", ".connectedAgentNum", "Agents that watch.", 1),
    Column("Node", "string", ".nodeRef.name", "Node of the controller.", 1),
    Column(
        "Num Network Policies",
        "integer",
        ".networkPolicyControllerInfo.networkPolicyNum",
        "Policies that it computes.",
        2,
    ),
)
CRDS: tuple[Crd, ...] = (
    Crd(
        "antreaagentinfos",
        ("aai",),
        "Cluster",
        (Version("v1beta1", info.AntreaAgentInfo, AGENT_COLUMNS),),
        labels=ANTREA,
    ),
    Crd(
        "antreacontrollerinfos",
        ("aci",),
        "Cluster",
        (Version("v1beta1", info.AntreaControllerInfo, CONTROLLER_COLUMNS),),
        labels=ANTREA,
    ),
    Crd(
        "antreanodeconfigs",
        ("anc",),
        "Cluster",
        (Version("v1alpha1", node_config.AntreaNodeConfig, (AGE,)),),
        ("AntreaNodeConfig",),
        ANTREA,
    ),
    Crd(
        "bgppolicies",
        (),
        "Cluster",
        (
            Version(
                "v1alpha1",
                bgp.BGPPolicy,
                (Column("Local ASN", "integer", ".spec.localASN", "AS number of the Nodes."), AGE),
            ),
        ),
        ("BGPPolicy",),
    ),
    Crd(
        "clustergroups",
        ("cg",),
        "Cluster",
        (Version("v1beta1", group.ClusterGroup, status=True),),
        ("AntreaPolicy",),
        ANTREA,
    ),
    Crd(
        "clusternetworkpolicies",
        ("acnp",),
        "Cluster",
        (Version("v1beta1", network_policy.ClusterNetworkPolicy, POLICY_COLUMNS, status=True),),
        ("AntreaPolicy",),
        ANTREA,
    ),
    Crd(
        "egresses",
        ("eg",),
        "Cluster",
        (
            Version("v1alpha2", v1alpha2.Egress, EGRESS_COLUMNS, storage=False, status=True),
            Version("v1beta1", egress.Egress, EGRESS_COLUMNS, status=True),
        ),
        ("Egress",),
        CONVERTED,
        "/convert/egress",
    ),
    Crd(
        "externalentities",
        ("ee",),
        "Namespaced",
        (Version("v1alpha2", external.ExternalEntity),),
        ("AntreaPolicy", "ExternalNode"),
        ANTREA,
    ),
    Crd(
        "externalippools",
        ("eip",),
        "Cluster",
        (
            Version("v1alpha2", v1alpha2.ExternalIPPool, POOL_COLUMNS, storage=False, status=True),
            Version("v1beta1", pool.ExternalIPPool, POOL_COLUMNS, status=True),
        ),
        ("Egress", "ServiceExternalIP"),
        CONVERTED,
        "/convert/externalippool",
    ),
    Crd(
        "externalnodes",
        ("en",),
        "Namespaced",
        (Version("v1alpha1", external.ExternalNode),),
        ("ExternalNode",),
        ANTREA,
    ),
    Crd(
        "flowexporterdestinations",
        ("flowexporterdest",),
        "Cluster",
        (
            Version(
                "v1alpha1",
                flow_export.FlowExporterDestination,
                (Column("Address:Port", "string", ".spec.address", "The collector."),),
            ),
        ),
        ("FlowExporter",),
        ANTREA,
    ),
    Crd(
        "groups",
        ("grp",),
        "Namespaced",
        (Version("v1beta1", group.Group, status=True),),
        ("AntreaPolicy",),
    ),
    Crd(
        "ippools",
        ("ipp",),
        "Cluster",
        (
            Version(
                "v1alpha2",
                v1alpha2.IPPool,
                POOL_COLUMNS,
                storage=False,
                status=True,
                deprecation="crd.antrea.io/v1alpha2 IPPool is deprecated; use crd.antrea.io/v1beta1 IPPool",
            ),
            Version("v1beta1", pool.IPPool, POOL_COLUMNS, status=True),
        ),
        ("AntreaIPAM", "SecondaryNetwork"),
        CONVERTED,
        "/convert/ippool",
    ),
    Crd(
        "networkpolicies",
        ("annp", "anp"),
        "Namespaced",
        (Version("v1beta1", network_policy.NetworkPolicy, POLICY_COLUMNS, status=True),),
        ("AntreaPolicy",),
        ANTREA,
    ),
    Crd(
        "nodelatencymonitors",
        ("nlm",),
        "Cluster",
        (
            Version(
                "v1alpha1",
                latency.NodeLatencyMonitor,
                (
                    Column(
                        "PingIntervalSeconds", "string", ".spec.pingIntervalSeconds", "Time between pings."
                    ),
                    AGE,
                ),
                only_name="default",
            ),
        ),
        ("NodeLatencyMonitor",),
    ),
    Crd(
        "packetcaptures",
        ("pcap",),
        "Cluster",
        (Version("v1alpha1", packet_capture.PacketCapture, CAPTURE_COLUMNS, status=True),),
        ("PacketCapture",),
        ANTREA,
    ),
    Crd(
        "supportbundlecollections",
        ("sbc",),
        "Cluster",
        (Version("v1alpha1", support_bundle.SupportBundleCollection, status=True),),
        ("SupportBundleCollection",),
    ),
    Crd(
        "tiers",
        ("tr",),
        "Cluster",
        (
            Version(
                "v1beta1",
                tier.Tier,
                (Column("Priority", "integer", ".spec.priority", "Place among the Tiers."), AGE),
            ),
        ),
        ("AntreaPolicy",),
        ANTREA,
    ),
    Crd(
        "traceflows",
        ("tf",),
        "Cluster",
        (Version("v1beta1", traceflow.Traceflow, TRACE_COLUMNS, status=True),),
        ("Traceflow",),
        ANTREA,
    ),
    Crd(
        "trafficcontrols",
        ("tc",),
        "Cluster",
        (
            Version(
                "v1alpha2",
                traffic_control.TrafficControl,
                (
                    Column("Direction", "string", ".spec.direction", "Which traffic of the Pods."),
                    Column("Action", "string", ".spec.action", "What the target gets."),
                    AGE,
                ),
                status=True,
            ),
        ),
        ("TrafficControl",),
    ),
)
ADMIN_PRIORITY = Column("Priority", "string", ".spec.priority", "Place among the policies of the tier.")
APPROVED = "api-approved.kubernetes.io"
"""Annotation that the API server wants of definitions in a group of Kubernetes: where the API was approved."""
APPROVALS = "https://github.com/kubernetes-sigs/network-policy-api/pull"
ADMIN_CRDS: tuple[Crd, ...] = (
    Crd(
        "adminnetworkpolicies",
        ("anp",),
        "Cluster",
        (Version("v1alpha1", v1alpha1.AdminNetworkPolicy, (ADMIN_PRIORITY, AGE), status=True),),
        ("AdminNetworkPolicy",),
        ANTREA,
        group=part.GROUP,
        annotations={APPROVED: f"{APPROVALS}/300"},
    ),
    Crd(
        "baselineadminnetworkpolicies",
        ("banp",),
        "Cluster",
        (Version("v1alpha1", v1alpha1.BaselineAdminNetworkPolicy, (AGE,), status=True, only_name="default"),),
        ("AdminNetworkPolicy",),
        ANTREA,
        group=part.GROUP,
        annotations={APPROVED: f"{APPROVALS}/300"},
    ),
    Crd(
        "clusternetworkpolicies",
        ("cnp",),
        "Cluster",
        (
            Version(
                "v1alpha2",
                cluster_network_policy.ClusterNetworkPolicy,
                (Column("Tier", "string", ".spec.tier", "Admin or Baseline."), ADMIN_PRIORITY, AGE),
                status=True,
            ),
        ),
        ("ClusterNetworkPolicy",),
        ANTREA,
        group=part.GROUP,
        annotations={APPROVED: f"{APPROVALS}/347"},
    ),
)
"""Kinds of the network-policy-api project."""
ALL_CRDS = (*CRDS, *ADMIN_CRDS)
