"""The kernel's table of virtual servers, as text of a kernel."""

from __future__ import annotations

from antrea.outside.netlink.ipvs import VirtualServer, connection_servers, parse

TABLE = """\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:01BB rr
  -> AC1E0001:192B      Masq    1      0          0
SCTP 0A600005:1B59 rr persistent 10800
UDP  [fd00:0010:0096:0000:0000:0000:0000:000a]:0035 rr
  -> [fd00:0010:0244:0000:0000:0000:0000:0002]:0035      Masq    1      0          0
FWM  0000000A wlc
"""


def test_virtual_servers_of_both_families_are_read_and_real_ones_and_marks_are_not() -> None:
    assert list(parse(TABLE)) == [
        VirtualServer("TCP", "10.96.0.1", 443),
        VirtualServer("SCTP", "10.96.0.5", 7001),
        VirtualServer("UDP", "fd00:10:96::a", 53),
    ]


CONNECTIONS = """\
Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP 0A600001 C350 0A600001 01BB AC1E0001 192B ESTABLISHED     899
TCP fd00:0010:0096:0000:0000:0000:0000:000a C351 fd00:0010:0096:0000:0000:0000:0000:000a 0050 fd00:0010:0244:0000:0000:0000:0000:0002 238D ESTABLISHED     899
UDP 0A600002 0000 0A600001 0035 AC1E0001 0035 NONE             55
"""


def test_connections_name_their_virtual_server_and_what_keeps_a_choice_is_none() -> None:
    assert list(connection_servers(CONNECTIONS)) == [
        VirtualServer("TCP", "10.96.0.1", 443),
        VirtualServer("TCP", "fd00:10:96::a", 80),
    ]
