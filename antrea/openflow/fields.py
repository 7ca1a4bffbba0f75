"""Every register field, ct_mark, ct_label and pkt_mark bit, zone and special MAC address, each with its purpose.

Source: pkg/agent/openflow/fields.go; the bits are those of Antrea main.
"""

from __future__ import annotations

from antrea.openflow.field import Field
from antrea.openflow.purpose import Purposed

# reg0: where the packet comes from, where it goes, what was decided
PKT_SOURCE = Field("PktSource", "reg0", 0, 3, "Where the packet entered the bridge.")
FROM_TUNNEL = PKT_SOURCE(1, "From another Node, through the tunnel.")
FROM_GATEWAY = PKT_SOURCE(2, "From the Node, through antrea-gw0.")
FROM_POD = PKT_SOURCE(3, "From a Pod of this Node.")
FROM_UPLINK = PKT_SOURCE(4, "From the physical network, through an uplink on the bridge.")
FROM_BRIDGE = PKT_SOURCE(5, "From the Node, through the bridge's own port.")
FROM_TRAFFIC_CONTROL = PKT_SOURCE(6, "Back from the device of a TrafficControl.")
FROM_L7_ENGINE = PKT_SOURCE(7, "Back from the layer 7 engine.")
PKT_DESTINATION = Field("PktDestination", "reg0", 4, 7, "Where the packet leaves the bridge.")
TO_TUNNEL = PKT_DESTINATION(1, "To another Node, through the tunnel.")
TO_GATEWAY = PKT_DESTINATION(2, "To the Node or the world, through antrea-gw0.")
TO_UPLINK = PKT_DESTINATION(4, "To the physical network, through an uplink on the bridge.")
REWRITE_MAC_FIELD = Field(
    "RewriteMAC", "reg0", 9, 9, "Whether the MAC addresses have to be rewritten before delivery."
)
REWRITE_MAC = REWRITE_MAC_FIELD(1, "They have to.")
NOT_REWRITE_MAC = REWRITE_MAC_FIELD(0, "The sender has resolved them.")
AP_DENY_FIELD = Field("APDeny", "reg0", 10, 10, "Whether an Antrea policy denies the packet.")
AP_DENY = AP_DENY_FIELD(1, "It does.")
AP_DISPOSITION = Field("APDisposition", "reg0", 11, 12, "The verdict of a policy, for the log.")
DISPOSITION_ALLOW = AP_DISPOSITION(0, "Allow.")
DISPOSITION_DROP = AP_DISPOSITION(1, "Drop.")
DISPOSITION_REJECT = AP_DISPOSITION(2, "Reject.")
DISPOSITION_PASS = AP_DISPOSITION(3, "Pass on to Kubernetes policies.")
GENERATED_REJECT_FIELD = Field(
    "GeneratedRejectPacketOut", "reg0", 13, 13, "Whether the agent made the packet as a rejection."
)
GENERATED_REJECT = GENERATED_REJECT_FIELD(1, "It did.")
SVC_NO_EP_FIELD = Field("SvcNoEp", "reg0", 14, 14, "Whether the Service has no Endpoint.")
SVC_NO_EP = SVC_NO_EP_FIELD(1, "It has none: the packet is rejected.")
REMOTE_SNAT_FIELD = Field("RemoteSNAT", "reg0", 19, 19, "Whether another Node translates the source.")
REMOTE_SNAT = REMOTE_SNAT_FIELD(1, "It does: the packet is on its way to the Egress Node.")
L7_REDIRECT_FIELD = Field("L7NPRedirect", "reg0", 20, 20, "Whether the layer 7 engine inspects the packet.")
L7_REDIRECT = L7_REDIRECT_FIELD(1, "It does.")
OUTPUT_TO = Field("OutputTo", "reg0", 21, 22, "What the Output table does.")
OUTPUT_TO_PORT = OUTPUT_TO(1, "Send to the port in TargetOFPort.")
OUTPUT_TO_CONTROLLER = OUTPUT_TO(2, "Send to the agent.")
CT_STATE_RESTORED_FIELD = Field(
    "CtStateRestored", "reg0", 23, 23, "Whether the connection state was read before translation."
)
CT_STATE_RESTORED = CT_STATE_RESTORED_FIELD(1, "It was.")
PACKET_IN_OPERATION = Field(
    "PacketInOperation", "reg0", 25, 31, "What the agent does with the packet, a set of bits."
)
PACKET_IN_LOG = PACKET_IN_OPERATION(1, "Write it to the audit log.")
PACKET_IN_REJECT = PACKET_IN_OPERATION(2, "Reject it.")
PACKET_IN_DENY = PACKET_IN_OPERATION(4, "Record a denied connection.")

# reg1 to reg3
TARGET_OFPORT = Field("TargetOFPort", "reg1", 0, 31, "Port that the packet leaves by.")
SWAP = Field("SwapField", "reg2", 0, 31, "Holds an address while the ARP responder swaps two.")
PACKET_IN_TABLE = Field("PacketInTable", "reg2", 0, 7, "Table that sent the packet to the agent.")
ENDPOINT_IP = Field("EndpointIP", "reg3", 0, 31, "IPv4 address of the selected Endpoint.")
AP_CONJUNCTION = Field("APConjID", "reg3", 0, 31, "Conjunction of the Antrea rule that denied the packet.")

# reg4: Services and the origin of a packet
ENDPOINT_PORT = Field("EndpointPort", "reg4", 0, 15, "Port of the selected Endpoint.")
SERVICE_EP_STATE = Field("ServiceEPState", "reg4", 16, 18, "How far the selection of an Endpoint is.")
EP_TO_SELECT = SERVICE_EP_STATE(1, "An Endpoint has to be selected.")
EP_SELECTED = SERVICE_EP_STATE(2, "It is selected.")
EP_TO_LEARN = SERVICE_EP_STATE(3, "It is selected, and the client shall stay on it.")
ENDPOINT_UNION = Field("EndpointUnion", "reg4", 0, 18, "Port and state of the selection, matched together.")
TO_NODE_PORT_FIELD = Field(
    "ToNodePortAddress", "reg4", 19, 19, "Whether the destination is an address of NodePorts."
)
TO_NODE_PORT = TO_NODE_PORT_FIELD(1, "It is.")
NOT_TO_NODE_PORT = TO_NODE_PORT_FIELD(0, "It is not.")
FLEXIBLE_IPAM_FIELD = Field(
    "AntreaFlexibleIPAM", "reg4", 20, 20, "Whether the source has an address of an IPPool."
)
FLEXIBLE_IPAM = FLEXIBLE_IPAM_FIELD(1, "It has.")
NOT_FLEXIBLE_IPAM = FLEXIBLE_IPAM_FIELD(0, "It has one of the Node's Pod CIDR.")
TO_EXTERNAL_FIELD = Field(
    "ToExternalAddress", "reg4", 21, 21, "Whether a Service was hit by an external address."
)
TO_EXTERNAL = TO_EXTERNAL_FIELD(1, "By a NodePort, load balancer or external IP.")
TRAFFIC_CONTROL_ACTION = Field(
    "TrafficControlAction", "reg4", 22, 23, "What a TrafficControl does with the packet."
)
TRAFFIC_CONTROL_MIRROR = TRAFFIC_CONTROL_ACTION(1, "Send a copy to its device.")
TRAFFIC_CONTROL_REDIRECT = TRAFFIC_CONTROL_ACTION(2, "Send the packet itself to its device.")
NESTED_SERVICE_FIELD = Field(
    "NestedService", "reg4", 24, 24, "Whether the Endpoints of the Service are Services."
)
NESTED_SERVICE = NESTED_SERVICE_FIELD(1, "They are, of other clusters.")
DSR_FIELD = Field("DSRService", "reg4", 25, 25, "Whether the Endpoint answers the client directly.")
DSR = DSR_FIELD(1, "It does.")
NOT_DSR = DSR_FIELD(0, "The answer comes back by this Node.")
REMOTE_ENDPOINT_FIELD = Field(
    "RemoteEndpoint", "reg4", 26, 26, "Whether the selected Endpoint is on another Node."
)
REMOTE_ENDPOINT = REMOTE_ENDPOINT_FIELD(1, "It is.")
FROM_EXTERNAL_FIELD = Field("FromExternal", "reg4", 27, 27, "Whether the Node only forwarded the packet.")
FROM_EXTERNAL = FROM_EXTERNAL_FIELD(1, "By the gateway, with a source that is not the gateway's.")
FROM_LOCAL_FIELD = Field("FromLocal", "reg4", 28, 28, "Whether the sender is on this Node.")
FROM_LOCAL = FROM_LOCAL_FIELD(1, "A Pod of this Node, or the Node itself.")

# reg5 to reg9, xxreg3
EGRESS_CONJUNCTION = Field(
    "TFEgressConjID", "reg5", 0, 31, "Conjunction of the egress rule that allowed the packet."
)
INGRESS_CONJUNCTION = Field(
    "TFIngressConjID", "reg6", 0, 31, "Conjunction of the ingress rule that allowed the packet."
)
SERVICE_GROUP = Field("ServiceGroupID", "reg7", 0, 31, "Group of the Service that the packet was sent to.")
VLAN_ID = Field("VLANID", "reg8", 0, 11, "VLAN of a Pod with an address of an IPPool.")
CT_ZONE_TYPE = Field("CtZoneTypeField", "reg8", 12, 15, "Family part of the connection tracking zone.")
CT_ZONE_TYPE_IPV4 = CT_ZONE_TYPE(1, "IPv4.")
CT_ZONE_TYPE_IPV6 = CT_ZONE_TYPE(3, "IPv6.")
CT_ZONE = Field("CtZone", "reg8", 0, 15, "Zone of connection tracking while an uplink is on the bridge.")
TRAFFIC_CONTROL_TARGET = Field(
    "TrafficControlTargetOFPort", "reg9", 0, 31, "Port of the device of a TrafficControl."
)
ENDPOINT_IP6 = Field("EndpointIP6", "xxreg3", 0, 127, "IPv6 address of the selected Endpoint.")

# ct_mark
CT_SOURCE = Field(
    "ConnSourceCTMark", "ct_mark", 0, 3, "Where the first packet of the connection entered the bridge."
)
CT_SOURCE_TUNNEL = CT_SOURCE(1, "From another Node, through the tunnel.")
CT_SOURCE_GATEWAY = CT_SOURCE(2, "From the Node, through antrea-gw0.")
CT_SOURCE_BRIDGE = CT_SOURCE(5, "From the Node, through the bridge's own port.")
SERVICE_CT_FIELD = Field(
    "ServiceCTMark", "ct_mark", 4, 4, "Whether the destination was translated to an Endpoint."
)
SERVICE_CT_MARK = SERVICE_CT_FIELD(1, "It was.")
NOT_SERVICE_CT_MARK = SERVICE_CT_FIELD(0, "It was not.")
SNAT_CT_FIELD = Field("ConnSNATCTMark", "ct_mark", 5, 5, "Whether the bridge translated the source.")
SNAT_CT_MARK = SNAT_CT_FIELD(1, "It did.")
NOT_SNAT_CT_MARK = SNAT_CT_FIELD(0, "It did not.")
HAIRPIN_CT_FIELD = Field(
    "HairpinCTMark", "ct_mark", 6, 6, "Whether the connection leaves by the port it came in by."
)
HAIRPIN_CT_MARK = HAIRPIN_CT_FIELD(1, "It does.")
L7_CT_FIELD = Field(
    "L7NPRedirectCTMark", "ct_mark", 7, 7, "Whether the layer 7 engine inspects the connection."
)
L7_CT_MARK = L7_CT_FIELD(1, "It does.")

# ct_label
INGRESS_RULE_CT_LABEL = Field(
    "IngressRuleCTLabel", "ct_label", 0, 31, "Ingress rule that allowed the connection."
)
EGRESS_RULE_CT_LABEL = Field(
    "EgressRuleCTLabel", "ct_label", 32, 63, "Egress rule that allowed the connection."
)
L7_VLAN_CT_LABEL = Field(
    "L7NPRuleVlanIDCTLabel", "ct_label", 64, 75, "VLAN that tells the layer 7 engine the rule."
)

# pkt_mark, shared with the host
SNAT_PKT_MARK = Field(
    "SNATIPMark", "pkt_mark", 0, 7, "Number of the Egress IP that the host translates the source to."
)
EGRESS_RETURN_FIELD = Field(
    "EgressReturnMark", "pkt_mark", 30, 30, "Whether the packet answers one of a remote Egress Pod."
)
EGRESS_RETURN = EGRESS_RETURN_FIELD(1, "It does.")
HOST_LOCAL_FIELD = Field(
    "HostLocalSourceMark", "pkt_mark", 31, 31, "Whether the Node itself sent the packet."
)
HOST_LOCAL = HOST_LOCAL_FIELD(1, "It did: kubelet's probes are not subject to policies.")

FIELDS: tuple[Field, ...] = tuple(value for value in globals().values() if isinstance(value, Field))
"""All of them, in order of declaration."""


class Zone(Purposed):
    """Zones of connection tracking."""

    IPV4 = 65520, "IPv4 connections."
    IPV6 = 65510, "IPv6 connections."
    SNAT_IPV4 = 65521, "IPv4 connections whose source the bridge translates."
    SNAT_IPV6 = 65511, "IPv6 connections whose source the bridge translates."


CT_ZONE_IPV4 = Zone.IPV4
CT_ZONE_IPV6 = Zone.IPV6

VIRTUAL_MAC = "aa:bb:cc:dd:ee:ff"
"""Stands for the gateways of all other Nodes."""
MULTICLUSTER_MAC = "aa:bb:cc:dd:ee:f0"
"""Stands for the gateways of other clusters."""
