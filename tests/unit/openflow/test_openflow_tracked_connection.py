"""Texts that ovs-vswitchd 3.1 and 3.5 print for connections of the kernel and of their own."""

from __future__ import annotations

from antrea.openflow.tracked_connection import TrackedDump, start_time, tracked_connections

OWN = (
    "tcp,orig=(src=10.10.0.5,dst=10.96.0.9,sport=40000,dport=80),reply=(src=10.10.1.7,dst=10.10.0.5,sport=8080,dport=40000),"
    "zone=65520,timeout=21,mark=33,labels=0x700000005,protoinfo=(state=FIN_WAIT_2)"
)
KERNEL = (
    "udp,orig=(src=fd00::5,dst=fd00::7,sport=4000,dport=53,packets=3,bytes=210),"
    "reply=(src=fd00::7,dst=fd00::5,sport=53,dport=4000,packets=2,bytes=180),start=2026-11-23T05:07:03.998,zone=65510,"
    "timeout=29,mark=2"
)
ECHO = "icmp,orig=(src=10.10.0.5,dst=10.10.0.6,id=7,type=8,code=0),reply=(src=10.10.0.6,dst=10.10.0.5,id=7,type=0,code=0),zone=65520,timeout=29"


def test_tracked_connections_of_both_datapaths_are_read() -> None:
    own, kernel, echo = tracked_connections(f"{OWN}\nsctp,what\ngre,orig=(src=1,dst=2)\n{KERNEL}\n{ECHO}")
    assert own.key == (6, "10.10.0.5", 40000, "10.10.1.7", 8080, 0)
    assert (own.destination, own.port, own.source_seen, own.source_port_seen) == (
        "10.96.0.9",
        80,
        "10.10.0.5",
        40000,
    )
    assert (own.mark, own.label, own.state, own.packets, own.start) == (33, 0x700000005, "FIN_WAIT", 0, "")
    assert kernel.key == (17, "fd00::5", 4000, "fd00::7", 53, 0)
    assert (kernel.packets, kernel.byte_count, kernel.reply_packets, kernel.reply_byte_count) == (
        3,
        210,
        2,
        180,
    )
    assert (kernel.start, kernel.mark, kernel.label, kernel.state) == ("2026-11-23T05:07:03.998", 2, 0, "")
    assert echo.key == (1, "10.10.0.5", 0, "10.10.0.6", 0, 7)


def test_a_start_that_is_not_printed_is_not_known() -> None:
    assert start_time("") is None
    assert start_time("2026-11-23T05:07:04.25") == (start_time("2026-11-23T05:07:03.75") or 0) + 0.5


def test_of_a_dump_only_what_is_another_than_before_is_parsed() -> None:
    dump, lines = TrackedDump(), [OWN, KERNEL, ECHO]
    changed, gone = dump.read(["\n".join(lines[:2]), lines[2]])
    assert ({one.key for one in changed}, gone) == ({one.key for one in dump.everything()}, [])
    assert len(changed) == 3
    shown = [line.replace("timeout=", "timeout=9") for line in lines]
    assert any("timeout=9" in line for line in shown)
    assert dump.read(["\n".join(shown)]) == ([], [])
    [before] = tracked_connections(KERNEL)
    counted = KERNEL.replace(f"packets={before.packets},", f"packets={before.packets + 1},", 1)
    [one], gone = dump.read([f"{OWN}\n{counted}"])
    assert (one.packets, one.key) == (before.packets + 1, before.key)
    assert [each.key for each in gone] == [next(tracked_connections(ECHO)).key]
    assert {each.key for each in dump.everything()} == {one.key, next(tracked_connections(OWN)).key}
