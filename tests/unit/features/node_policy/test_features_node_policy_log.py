"""Lines of the audit log on packets of the Node: the domain names of the rule."""

from __future__ import annotations

import struct
from ipaddress import ip_address

from test_features_node_policy import ALLOWED, NODES, TOLD, engine_of, only

from antrea.features.network_policy.agent.fqdn import FqdnAddress
from antrea.features.node_policy.agent_part.part import as_frame
from antrea.features.node_policy.audit import line
from antrea.features.node_policy.fqdn import NodeFqdnAddress
from antrea.openflow.packet import TCP, packet


def test_a_line_of_the_log_ends_with_the_name_that_has_the_receivers_address() -> None:
    rows = (FqdnAddress("a.test", "198.51.100.7"), NodeFqdnAddress("*.example.com", "198.51.100.7"))
    facts, _ = engine_of(*NODES, only(ALLOWED), TOLD, *rows)
    ends = b"".join(ip_address(ip).packed for ip in ("192.0.2.1", "198.51.100.7"))
    sent = (
        struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, TCP, 0)
        + ends
        + struct.pack("!HH", 40000, 443)
        + bytes(16)
    )
    written = line(facts, "np-p-0", packet(as_frame(sent)))
    assert written is not None
    assert written.text == (
        "NodePolicyEgressRule AntreaClusterNetworkPolicy:p r Egress Allow <nil> n1"
        " 192.0.2.1 40000 198.51.100.7 443 TCP 40 <nil> fqdn=*.example.com"
    )
