"""Every register field and mark, in order; names mean what upstream's mean.

A field is `Field(name, register, first bit, last bit, purpose)`. `FROM_POD_REG_MARK.match` and `.load` are the two
ways to use a mark; a field called with a number is a mark. Source: pkg/agent/openflow/fields.go.
"""

from __future__ import annotations

from antrea.openflow.field import Field, Mark
from antrea.openflow.purpose import Purposed

# reg0: what happens to the packet
PKT_SOURCE = Field("PktSource", "reg0", 0, 3, "Where the packet entered the bridge.")
FROM_TUNNEL_REG_MARK = PKT_SOURCE(1, "the tunnel port")
FROM_GATEWAY_REG_MARK = PKT_SOURCE(2, "the gateway port")
FROM_POD_REG_MARK = PKT_SOURCE(3, "a local Pod")
FROM_UPLINK_REG_MARK = PKT_SOURCE(4, "the uplink port")
FROM_BRIDGE_REG_MARK = PKT_SOURCE(5, "the local port of the bridge, the host")
FROM_TC_RETURN_REG_MARK = PKT_SOURCE(6, "the return port of a TrafficControl")
FROM_L7_NP_RETURN_REG_MARK = PKT_SOURCE(7, "the return port of the L7 engine")
PKT_DESTINATION = Field("PktDestination", "reg0", 4, 7, "Where the packet goes.")
TO_TUNNEL_REG_MARK = PKT_DESTINATION(1, "the tunnel port")
TO_GATEWAY_REG_MARK = PKT_DESTINATION(2, "the gateway port")
TO_UPLINK_REG_MARK = PKT_DESTINATION(4, "the uplink port")
REWRITE_MAC = Field("RewriteMAC", "reg0", 9, 9, "Whether routing must rewrite the MAC addresses.")
REWRITE_MAC_REG_MARK = REWRITE_MAC(1)
NOT_REWRITE_MAC_REG_MARK = REWRITE_MAC(0)
AP_DENY = Field("APDeny", "reg0", 10, 10, "An Antrea policy dropped or rejected the packet.")
AP_DENY_REG_MARK = AP_DENY(1)
AP_DISPOSITION = Field("APDisposition", "reg0", 11, 12, "Verdict of an Antrea policy, for the log.")
DISPOSITION_ALLOW_REG_MARK = AP_DISPOSITION(0, "allow")
DISPOSITION_DROP_REG_MARK = AP_DISPOSITION(1, "drop")
DISPOSITION_REJ_REG_MARK = AP_DISPOSITION(2, "reject")
DISPOSITION_PASS_REG_MARK = AP_DISPOSITION(3, "pass")
GENERATED_REJECT_PACKET_OUT = Field(
    "GeneratedRejectPacketOut", "reg0", 13, 13, "The agent made this packet to reject another."
)
GENERATED_REJECT_PACKET_OUT_REG_MARK = GENERATED_REJECT_PACKET_OUT(1)
SVC_NO_EP = Field("SvcNoEp", "reg0", 14, 14, "The Service has no Endpoint, or the port no Service.")
SVC_NO_EP_REG_MARK = SVC_NO_EP(1)
AUDIT_PASS = Field(
    "AuditPass",
    "reg0",
    15,
    15,
    "A copy of the packet, which audited policies judge beside those that are enforced.",
)
AUDIT_PASS_REG_MARK = AUDIT_PASS(1)
EGRESS_AUDITED = Field(
    "EgressAudited", "reg0", 16, 16, "Audited policies judge a copy on what its Pod sends."
)
EGRESS_AUDITED_REG_MARK, NOT_EGRESS_AUDITED_REG_MARK = EGRESS_AUDITED(1), EGRESS_AUDITED(0)
INGRESS_AUDITED = Field("IngressAudited", "reg0", 17, 17, "The same on what its Pod receives.")
INGRESS_AUDITED_REG_MARK, NOT_INGRESS_AUDITED_REG_MARK = INGRESS_AUDITED(1), INGRESS_AUDITED(0)
DROP_REPORTED = Field(
    "DropReported", "reg0", 18, 18, "The agent has a copy of this packet for captures of its Pod."
)
DROP_REPORTED_REG_MARK, DROP_NOT_TOLD_REG_MARK = DROP_REPORTED(1), DROP_REPORTED(0)
REMOTE_SNAT = Field("RemoteSNAT", "reg0", 19, 19, "The Egress IP of this packet is on another Node.")
REMOTE_SNAT_REG_MARK = REMOTE_SNAT(1)
L7_NP_REG = Field("L7NPReg", "reg0", 20, 20, "The log must say that the packet went to the L7 engine.")
L7_NP_REDIRECT_REG_MARK = L7_NP_REG(1)
OUTPUT_REG = Field("OutputReg", "reg0", 21, 22, "How the packet leaves the pipeline.")
OUTPUT_TO_OF_PORT_REG_MARK = OUTPUT_REG(1, "by the port that reg1 names")
OUTPUT_TO_CONTROLLER_REG_MARK = OUTPUT_REG(2, "to the agent")
CT_STATE_RESTORED = Field(
    "CtStateRestored", "reg0", 23, 23, "Connection tracking has filled in the state of this packet once."
)
CT_STATE_RESTORED_REG_MARK = CT_STATE_RESTORED(1)
CT_STATE_NOT_RESTORED_REG_MARK = CT_STATE_RESTORED(0)
TRACE_INJECTED = Field("TraceInjected", "reg0", 24, 24, "The agent made this packet for a Traceflow.")
TRACE_INJECTED_REG_MARK, NOT_TRACE_INJECTED_REG_MARK = TRACE_INJECTED(1), TRACE_INJECTED(0)
PACKET_IN_OPERATION = Field(
    "PacketInOperation",
    "reg0",
    25,
    31,
    "What the agent does with the packet that a policy sends it; bits unite.",
)
PACKET_IN_LOGGING_REG_MARK = PACKET_IN_OPERATION(1, "log it")
PACKET_IN_REJECT_REG_MARK = PACKET_IN_OPERATION(2, "reject it")
PACKET_IN_STORE_DENY_REG_MARK = PACKET_IN_OPERATION(4, "export its connection as denied")
PACKET_IN_CAPTURE_REG_MARK = PACKET_IN_OPERATION(8, "tell captures of its Pod why it is dropped")
PACKET_IN_DNS_COPY_REG_MARK = PACKET_IN_OPERATION(
    16, "note the addresses in it, a DNS answer that is forwarded"
)
PACKET_IN_DNS_METERED_REG_MARK = PACKET_IN_OPERATION(32, "the DNS answer is within the share of its Pod")

# reg1 to reg3
TARGET_OF_PORT = Field("TargetOFPort", "reg1", 0, 31, "Port by which the packet leaves.")
SWAP = Field("Swap", "reg2", 0, 31, "Scratch room for two ARP fields that change places.")
PACKET_IN_TABLE = Field(
    "PacketInTable", "reg2", 0, 7, "Table whose flow decided to send the packet to the agent."
)
ENDPOINT_IP = Field("EndpointIP", "reg3", 0, 31, "IPv4 address of the selected Endpoint.")
AP_CONJ_ID = Field("APConjID", "reg3", 0, 31, "Rule that denied the packet, once the Endpoint is used up.")
CLIENT_IP = Field(
    "ClientIP",
    "reg3",
    0,
    31,
    "IPv4 address of the client of a NodePort that a rule allowed, for the agent's log.",
)

# reg4: Services and traffic control
ENDPOINT_PORT = Field("EndpointPort", "reg4", 0, 15, "Port of the selected Endpoint.")
SERVICE_EP_STATE = Field("ServiceEPState", "reg4", 16, 18, "How far the selection of an Endpoint is.")
EP_TO_SELECT_REG_MARK = SERVICE_EP_STATE(1, "an Endpoint must be selected")
EP_SELECTED_REG_MARK = SERVICE_EP_STATE(2, "an Endpoint is selected")
EP_TO_LEARN_REG_MARK = SERVICE_EP_STATE(3, "an Endpoint is selected and must be remembered for the client")
EP_REMEMBERED_REG_MARK = SERVICE_EP_STATE(
    4, "the Endpoint that the client stays with is still to be looked up"
)
EP_UNION = Field("EpUnion", "reg4", 0, 18, "Port and state of the selection in one match.")
TO_NODE_PORT_ADDRESS = Field(
    "ToNodePortAddress", "reg4", 19, 19, "The destination is an address on which NodePorts listen."
)
TO_NODE_PORT_ADDRESS_REG_MARK = TO_NODE_PORT_ADDRESS(1)
ANTREA_FLEXIBLE_IPAM = Field(
    "AntreaFlexibleIPAM", "reg4", 20, 20, "A local Pod with an address from an IPPool sent the packet."
)
ANTREA_FLEXIBLE_IPAM_REG_MARK = ANTREA_FLEXIBLE_IPAM(1)
NOT_ANTREA_FLEXIBLE_IPAM_REG_MARK = ANTREA_FLEXIBLE_IPAM(0)
TO_EXTERNAL_ADDRESS = Field(
    "ToExternalAddress",
    "reg4",
    21,
    21,
    "The Service was reached by NodePort, load balancer IP or external IP.",
)
TO_EXTERNAL_ADDRESS_REG_MARK = TO_EXTERNAL_ADDRESS(1)
TRAFFIC_CONTROL_ACTION = Field(
    "TrafficControlAction", "reg4", 22, 23, "What a TrafficControl does to the packet."
)
TRAFFIC_CONTROL_MIRROR_REG_MARK = TRAFFIC_CONTROL_ACTION(1, "mirror")
TRAFFIC_CONTROL_REDIRECT_REG_MARK = TRAFFIC_CONTROL_ACTION(2, "redirect")
TRAFFIC_CONTROL_L7_EXPORT_REG_MARK = TRAFFIC_CONTROL_ACTION(3, "copy for L7FlowExporter")
NESTED_SERVICE = Field("NestedService", "reg4", 24, 24, "The Endpoints of the Service are Services.")
NESTED_SERVICE_REG_MARK = NESTED_SERVICE(1)
DSR_SERVICE = Field("DSRService", "reg4", 25, 25, "The Endpoint answers the client directly.")
DSR_SERVICE_REG_MARK = DSR_SERVICE(1)
NOT_DSR_SERVICE_REG_MARK = DSR_SERVICE(0)
REMOTE_ENDPOINT = Field(
    "RemoteEndpoint",
    "reg4",
    26,
    26,
    "The selected Endpoint is a Pod of another Node, and not on its host network.",
)
REMOTE_ENDPOINT_REG_MARK = REMOTE_ENDPOINT(1)
FROM_EXTERNAL = Field(
    "FromExternal", "reg4", 27, 27, "Entered by the gateway with a source that is not the gateway's."
)
FROM_EXTERNAL_REG_MARK = FROM_EXTERNAL(1)
FROM_LOCAL = Field("FromLocal", "reg4", 28, 28, "The source is a local Pod or the Node.")
FROM_LOCAL_REG_MARK = FROM_LOCAL(1)
REMEMBERED_REMOTE = Field(
    "RememberedRemote",
    "reg4",
    29,
    29,
    "The Endpoint that the client stays with was on another Node; RemoteEndpoint follows if it is still there.",
)
REMEMBERED_REMOTE_REG_MARK, NOT_REMEMBERED_REMOTE_REG_MARK = REMEMBERED_REMOTE(1), REMEMBERED_REMOTE(0)
SERVICE_RULES_PASSED = Field(
    "ServiceRulesPassed",
    "reg4",
    31,
    31,
    "A rule on Services passed the packet on: of such rules only those of the baseline tier are left.",
)
SERVICE_RULES_PASSED_REG_MARK = SERVICE_RULES_PASSED(1)
NOT_SERVICE_RULES_PASSED_REG_MARK = SERVICE_RULES_PASSED(0)

# reg5 to reg11, xxreg3
TF_EGRESS_CONJ_ID = Field("TFEgressConjID", "reg5", 0, 31, "Egress rule that let the packet pass.")
TF_INGRESS_CONJ_ID = Field("TFIngressConjID", "reg6", 0, 31, "Ingress rule that let the packet pass.")
SERVICE_GROUP_ID = Field("ServiceGroupID", "reg7", 0, 31, "Group of the Service that the packet was sent to.")
VLAN_ID = Field("VLANID", "reg8", 0, 11, "VLAN of the packet; 0 is untagged.")
CT_ZONE_TYPE = Field("CtZoneType", "reg8", 12, 15, "Family of the zone when the uplink is bridged.")
IP_CT_ZONE_TYPE_REG_MARK = CT_ZONE_TYPE(1, "IPv4")
IPV6_CT_ZONE_TYPE_REG_MARK = CT_ZONE_TYPE(3, "IPv6")
CT_ZONE = Field("CtZone", "reg8", 0, 15, "Zone of connection tracking when the uplink is bridged.")
TRAFFIC_CONTROL_TARGET_OF_PORT = Field(
    "TrafficControlTargetOFPort", "reg9", 0, 31, "Port to which a TrafficControl mirrors or redirects."
)
CONJUNCTION_SHARE = Field(
    "ConjunctionShare",
    "reg10",
    0,
    31,
    "Always 0: matches on some of its bits tell flows apart that would be one, too large for a message.",
)
PEER_CLASS = Field(
    "PeerClass",
    "reg11",
    0,
    31,
    "Groups of peers, those that many rules share, that the packet's other end is in; 0 is none.",
)
SENDER_CLASS = Field(
    "SenderClass", "reg11", 31, 31, "The other end is the sender: the packet is asked what it may enter."
)
ENDPOINT_IP6 = Field(
    "EndpointIP6", "xxreg3", 0, 127, "IPv6 address of the selected Endpoint; takes reg12 to reg15."
)
CLIENT_IP6 = Field("ClientIP6", "xxreg3", 0, 127, "The same in IPv6; takes reg12 to reg15.")

# ct_mark: what a connection remembers
CONN_SOURCE_CT_MARK = Field(
    "ConnSourceCTMark", "ct_mark", 0, 3, "Where the connection entered: the values of PktSource."
)
FROM_TUNNEL_CT_MARK = CONN_SOURCE_CT_MARK(1, "the tunnel port")
FROM_GATEWAY_CT_MARK = CONN_SOURCE_CT_MARK(2, "the gateway port")
FROM_BRIDGE_CT_MARK = CONN_SOURCE_CT_MARK(5, "the local port of the bridge, the host")
SERVICE = Field("Service", "ct_mark", 4, 4, "The destination was translated for a Service.")
SERVICE_CT_MARK = SERVICE(1)
NOT_SERVICE_CT_MARK = SERVICE(0)
CONN_SNAT = Field("ConnSNAT", "ct_mark", 5, 5, "The source was translated for a Service.")
CONN_SNAT_CT_MARK = CONN_SNAT(1)
NOT_CONN_SNAT_CT_MARK = CONN_SNAT(0)
HAIRPIN = Field("Hairpin", "ct_mark", 6, 6, "The connection leaves where it came from.")
HAIRPIN_CT_MARK, NOT_HAIRPIN_CT_MARK = HAIRPIN(1), HAIRPIN(0)
L7_NP_REDIRECT = Field("L7NPRedirect", "ct_mark", 7, 7, "The L7 engine inspects the connection.")
L7_NP_REDIRECT_CT_MARK = L7_NP_REDIRECT(1)
PICKED_UP = Field(
    "PickedUp", "ct_mark", 8, 8, "Its opening was not seen: either end may have sent its first packet."
)
PICKED_UP_CT_MARK = PICKED_UP(1)

# ct_label: which rules a connection belongs to
INGRESS_RULE_CT_LABEL = Field(
    "IngressRuleCTLabel", "ct_label", 0, 31, "Ingress rule that let the connection in."
)
EGRESS_RULE_CT_LABEL = Field(
    "EgressRuleCTLabel", "ct_label", 32, 63, "Egress rule that let the connection out."
)
L7_NP_RULE_VLAN_ID_CT_LABEL = Field(
    "L7NPRuleVlanIDCTLabel", "ct_label", 64, 75, "VLAN by which the L7 engine knows the rule."
)
L7_NP_EGRESS = Field("L7NPEgress", "ct_label", 76, 76, "The L7 engine inspects it by an egress rule.")
L7_NP_EGRESS_CT_LABEL, NOT_L7_NP_EGRESS_CT_LABEL = L7_NP_EGRESS(1), L7_NP_EGRESS(0)
L7_NP_INGRESS = Field("L7NPIngress", "ct_label", 77, 77, "The L7 engine inspects it by an ingress rule.")
L7_NP_INGRESS_CT_LABEL, NOT_L7_NP_INGRESS_CT_LABEL = L7_NP_INGRESS(1), L7_NP_INGRESS(0)
L7_NP_EGRESS_VLAN_ID_CT_LABEL = Field(
    "L7NPEgressVlanIDCTLabel",
    "ct_label",
    78,
    89,
    "VLAN of its egress rule, which L7NPRuleVlanID has no more where an ingress rule has one, too.",
)
NODE_PORT_CT_LABEL = Field(
    "NodePortCTLabel",
    "ct_label",
    95,
    95,
    "Whether a NodePort was asked, on the userspace datapath, where ToNodePortAddress is lost to packets before the first answer.",
)
SERVICE_GROUP_CT_LABEL = Field(
    "ServiceGroupCTLabel",
    "ct_label",
    96,
    127,
    "Group of the Service, on the userspace datapath, where ServiceGroupID is lost to packets before the first answer.",
)

# pkt_mark: the only words that OVS and the host exchange
SNAT_PKT_MARK = Field("SNATPktMark", "pkt_mark", 0, 7, "Which Egress IP the host translates the source to.")
PEER_PASSED = Field(
    "PeerPassed",
    "pkt_mark",
    29,
    29,
    "Another Node passed the packet on as it came, for an Endpoint here: the host routes it into the switch.",
)
EGRESS_RETURN = Field(
    "EgressReturn",
    "pkt_mark",
    30,
    30,
    "A reply to a Pod of another Node that left by an Egress IP of this Node.",
)
EGRESS_RETURN_PKT_MARK = EGRESS_RETURN(1)
HOST_LOCAL_SOURCE = Field("HostLocalSource", "pkt_mark", 31, 31, "A process of this Node sent the packet.")
HOST_LOCAL_SOURCE_PKT_MARK = HOST_LOCAL_SOURCE(1)


class Zone(Purposed):
    """Zones of connection tracking (pkg/agent/openflow/pipeline.go)."""

    CT_ZONE = 0xFFF0, "IPv4 connections."
    CT_ZONE_V6 = 0xFFE6, "IPv6 connections."
    SNAT_CT_ZONE = 0xFFF1, "IPv4 Service connections whose source is translated."
    SNAT_CT_ZONE_V6 = 0xFFE7, "IPv6 Service connections whose source is translated."


class PacketIn(Purposed):
    """First byte of the userdata of a packet-in: which feature it is for (pkg/agent/openflow/packetin.go)."""

    TRACEFLOW = 0, "A traced packet."
    NETWORK_POLICY = 1, "A packet to log, reject or export; the second byte is PacketInOperation."
    DNS = 2, "A DNS answer that a policy by name waits for."
    IGMP = 3, "An IGMP message of a local Pod."
    SVC_REJECT = 4, "A packet to a Service that has no Endpoint, or to a port that no Service has."
    PACKET_CAPTURE = 5, "A packet that is dropped, of a Pod whose packets are captured."


GLOBAL_VIRTUAL_MAC = "aa:bb:cc:dd:ee:ff"
"""Destination of every packet that is routed to another Node."""
GLOBAL_VIRTUAL_MAC_FOR_MULTICLUSTER = "aa:bb:cc:dd:ee:f0"
"""Destination of every packet that is routed to another cluster."""

UNKNOWN_LABEL_IDENTITY = 0xFFFFFF
"""tun_id of a Pod whose label identity is not known yet."""

FIELDS = tuple(value for value in globals().values() if isinstance(value, Field))
"""Every field, in declaration order."""
MARKS = {name: value for name, value in globals().items() if isinstance(value, Mark)}
"""Every mark by its constant's name, in declaration order."""
