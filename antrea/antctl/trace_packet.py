"""`antctl trace-packet`: asks the agent what its bridge would do with a packet.

Source: upstream pkg/antctl/antctl.go "trace-packet"; the text of OVS is printed as it is, whatever the output format.
"""

from __future__ import annotations

from antrea.features.framework.command import DataCommand, Flag

TRACE_PACKET = DataCommand(
    "",
    "trace-packet",
    "A",
    "OVS packet tracing",
    "/ovstracing",
    long="Trace the OVS flows that a packet passes, by ofproto/trace of OVS; see ovs-vswitchd(8).",
    example="  antctl trace-packet -S ns1/pod1 -D ns2/pod2\n"
    "  antctl trace-packet -S ns1/pod1 -D ns2/svc2 -f tcp,tcp_dst=80\n"
    "  antctl trace-packet -S ns1/pod1 -D 10.1.2.3 -f udp,udp_dst=1234\n"
    "  antctl trace-packet -S ns1/pod1 -D antrea-gw0\n"
    "  antctl trace-packet -p port1 -S 10.1.2.3 -D ns1/pod1\n"
    "  antctl trace-packet -p ns1/pod1 -f arp",
    flags=(
        Flag("port", "p", "where the packet enters: a port of the bridge or a local <Namespace>/<Pod>"),
        Flag("source", "S", "a <Namespace>/<Pod>, an IP address, or a port of the bridge"),
        Flag("destination", "D", "a <Namespace>/<Pod or Service>, an IP address, or a port of the bridge"),
        Flag("flow", "f", "header of the packet, such as tcp,tcp_dst=80; see ovs-fields(7)"),
        Flag("addressFamily", "F", "4 or 6; by default that of the flow or of an address, else 4"),
    ),
    form="yaml",
    shape=lambda answer, _: str(answer["result"]),
)
