"""Every table, in the order in which tables stand inside their pipeline; the order is the meaning.

Source: pkg/agent/openflow/pipeline.go, `newTable`.
"""

from __future__ import annotations

from antrea.openflow.table import Miss, PipelineId, Stage, Table

_ARP, _IP, _MULTICAST = PipelineId.ARP, PipelineId.IP, PipelineId.MULTICAST

# Root
PIPELINE_ROOT_CLASSIFIER = Table(
    "PipelineRootClassifier",
    PipelineId.ROOT,
    Stage.START,
    "Sends a packet to the pipeline of its protocol.",
    Miss.DROP,
)

# ARP
ARP_SPOOF_GUARD = Table(
    "ARPSpoofGuard",
    _ARP,
    Stage.VALIDATION,
    "Accepts ARP only from the port that owns its addresses.",
    Miss.DROP,
)
ARP_RESPONDER = Table("ARPResponder", _ARP, Stage.OUTPUT, "Answers ARP for the gateways of other Nodes.")

# IP: classifier, validation
CLASSIFIER = Table("Classifier", _IP, Stage.CLASSIFIER, "Marks where a packet entered the bridge.", Miss.DROP)
SPOOF_GUARD = Table(
    "SpoofGuard", _IP, Stage.VALIDATION, "Drops packets that carry an address of somebody else.", Miss.DROP
)
IPV6 = Table("IPv6", _IP, Stage.VALIDATION, "Lets neighbour discovery and IPv6 multicast pass to the switch.")
PIPELINE_IP_CLASSIFIER = Table(
    "PipelineIPClassifier", _IP, Stage.VALIDATION, "Sends multicast packets to the multicast pipeline."
)

# IP: connection tracking
UN_SNAT = Table(
    "UnSNAT",
    _IP,
    Stage.CONNTRACK_STATE,
    "Restores the destination of replies to source-translated connections.",
)
CONNTRACK_ZONE = Table(
    "ConntrackZone", _IP, Stage.CONNTRACK_STATE, "Sends packets through connection tracking and its NAT."
)
CONNTRACK_STATE = Table(
    "ConntrackState",
    _IP,
    Stage.CONNTRACK_STATE,
    "Drops invalid packets; packets of tracked connections skip load balancing.",
    Miss.FEATURE,
)

# IP: Services
PRE_ROUTING_CLASSIFIER = Table(
    "PreRoutingClassifier", _IP, Stage.PRE_ROUTING, "Runs the tables that choose the Endpoint of a Service."
)
NODE_PORT_MARK = Table(
    "NodePortMark", _IP, Stage.PRE_ROUTING, "Marks packets to an address on which NodePorts listen."
)
SESSION_AFFINITY = Table(
    "SessionAffinity",
    _IP,
    Stage.PRE_ROUTING,
    "Holds learned flows that keep a client on its Endpoint.",
    Miss.FEATURE,
)
SERVICE_LB = Table(
    "ServiceLB", _IP, Stage.PRE_ROUTING, "Matches a Service and selects an Endpoint by its group."
)
DSR_SERVICE_MARK = Table(
    "DSRServiceMark", _IP, Stage.PRE_ROUTING, "Marks connections whose Endpoint answers the client directly."
)
ENDPOINT_DNAT = Table(
    "EndpointDNAT", _IP, Stage.PRE_ROUTING, "Translates the destination to the selected Endpoint."
)
DNAT = Table(
    "DNAT",
    _IP,
    Stage.PRE_ROUTING,
    "Sends Service traffic to the host when AntreaProxy is off, after the egress rules that name Services.",
)

# IP: egress policy
EGRESS_SECURITY_CLASSIFIER = Table(
    "EgressSecurityClassifier",
    _IP,
    Stage.EGRESS_SECURITY,
    "Lets configured traffic of an ExternalNode skip policy.",
)
ANTREA_POLICY_EGRESS_RULE = Table(
    "AntreaPolicyEgressRule",
    _IP,
    Stage.EGRESS_SECURITY,
    "Egress rules of Antrea policies in all tiers but baseline.",
)
EGRESS_RULE = Table("EgressRule", _IP, Stage.EGRESS_SECURITY, "Egress rules of Kubernetes network policies.")
EGRESS_DEFAULT_RULE = Table(
    "EgressDefaultRule",
    _IP,
    Stage.EGRESS_SECURITY,
    "Drops what isolated Pods send and no rule allowed; egress rules of the baseline tier.",
)
EGRESS_METRIC = Table(
    "EgressMetric", _IP, Stage.EGRESS_SECURITY, "Counts packets per egress rule; drops denied ones."
)

# IP: routing
L3_FORWARDING = Table(
    "L3Forwarding",
    _IP,
    Stage.ROUTING,
    "Chooses the next hop: a local Pod, the gateway, a tunnel or the uplink.",
    Miss.FEATURE,
)
EGRESS_MARK = Table(
    "EgressMark",
    _IP,
    Stage.ROUTING,
    "Chooses the Egress IP of packets that leave the cluster.",
    Miss.FEATURE,
)
EGRESS_QOS = Table("EgressQoS", _IP, Stage.ROUTING, "Limits the bandwidth of an Egress.")
L3_DEC_TTL = Table("L3DecTTL", _IP, Stage.ROUTING, "Decrements the TTL of routed packets.")
SNAT_MARK = Table(
    "SNATMark", _IP, Stage.POST_ROUTING, "Marks Service connections whose source must be translated."
)
SNAT = Table("SNAT", _IP, Stage.POST_ROUTING, "Translates the source of marked Service connections.")

# IP: switching
L2_FORWARDING_CALC = Table(
    "L2ForwardingCalc", _IP, Stage.SWITCHING, "Finds the output port of a destination MAC."
)
TRAFFIC_CONTROL = Table("TrafficControl", _IP, Stage.SWITCHING, "Marks packets to mirror or to redirect.")

# IP: ingress policy
INGRESS_SECURITY_CLASSIFIER = Table(
    "IngressSecurityClassifier",
    _IP,
    Stage.INGRESS_SECURITY,
    "Lets packets that leave the Node skip ingress policy.",
)
ANTREA_POLICY_INGRESS_RULE = Table(
    "AntreaPolicyIngressRule",
    _IP,
    Stage.INGRESS_SECURITY,
    "Ingress rules of Antrea policies in all tiers but baseline.",
)
INGRESS_RULE = Table(
    "IngressRule", _IP, Stage.INGRESS_SECURITY, "Ingress rules of Kubernetes network policies."
)
INGRESS_DEFAULT_RULE = Table(
    "IngressDefaultRule",
    _IP,
    Stage.INGRESS_SECURITY,
    "Drops what no rule allowed to isolated Pods; ingress rules of the baseline tier.",
)
INGRESS_METRIC = Table(
    "IngressMetric", _IP, Stage.INGRESS_SECURITY, "Counts packets per ingress rule; drops denied ones."
)

# IP: commit and output
CONNTRACK_COMMIT = Table(
    "ConntrackCommit", _IP, Stage.CONNTRACK, "Commits new connections and their source mark."
)
VLAN = Table("VLAN", _IP, Stage.OUTPUT, "Adds and removes the VLAN tag of packets to and from the uplink.")
OUTPUT = Table(
    "Output", _IP, Stage.OUTPUT, "Sends a packet to its port, to the agent, or back where it came from."
)

# Multicast
MULTICAST_EGRESS_RULE = Table(
    "MulticastEgressRule", _MULTICAST, Stage.EGRESS_SECURITY, "Egress rules of Antrea policies for multicast."
)
MULTICAST_EGRESS_METRIC = Table(
    "MulticastEgressMetric", _MULTICAST, Stage.EGRESS_SECURITY, "Counts multicast packets per egress rule."
)
MULTICAST_EGRESS_POD_METRIC = Table(
    "MulticastEgressPodMetric", _MULTICAST, Stage.EGRESS_SECURITY, "Counts multicast packets that a Pod sent."
)
MULTICAST_ROUTING = Table(
    "MulticastRouting",
    _MULTICAST,
    Stage.ROUTING,
    "Sends IGMP to the agent and multicast packets to their receivers.",
)
MULTICAST_INGRESS_RULE = Table(
    "MulticastIngressRule",
    _MULTICAST,
    Stage.INGRESS_SECURITY,
    "Ingress rules of Antrea policies for multicast.",
)
MULTICAST_INGRESS_METRIC = Table(
    "MulticastIngressMetric", _MULTICAST, Stage.INGRESS_SECURITY, "Counts multicast packets per ingress rule."
)
MULTICAST_INGRESS_POD_METRIC = Table(
    "MulticastIngressPodMetric",
    _MULTICAST,
    Stage.INGRESS_SECURITY,
    "Counts multicast packets that a Pod received.",
)
MULTICAST_OUTPUT = Table("MulticastOutput", _MULTICAST, Stage.OUTPUT, "Sends a multicast packet to its port.")

# Non-IP
NON_IP = Table(
    "NonIP",
    PipelineId.NON_IP,
    Stage.CLASSIFIER,
    "Passes packets that are not IP between the two ports of an ExternalNode.",
    Miss.DROP,
)

TABLES = tuple(value for value in globals().values() if isinstance(value, Table))
"""Every table, in declaration order."""
