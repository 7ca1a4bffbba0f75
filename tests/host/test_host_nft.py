"""Our nftables tables on a real kernel: what packets meet, one transaction per change, restarts, other people's flushes."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from typing import TYPE_CHECKING, Any

import pytest

from antrea.errors import Refused
from antrea.host.nft import (
    NftChain,
    NftElement,
    NftHops,
    NftRelay,
    NftRule,
    NftSet,
    NftShield,
    NftSilence,
    NftTag,
)
from antrea.outside.netlink.netns import NetnsWorker
from antrea.outside.nftables.libnftables import Library, Nft, NftError, Program
from antrea.outside.nftables.sink import NftSink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

EGRESS = 4
POSTROUTING = NftChain(name="postrouting", hook="type nat hook postrouting priority srcnat; policy accept;")
PREROUTING = NftChain(name="prerouting", hook="type filter hook prerouting priority mangle; policy accept;")
SNAT_MAP = NftSet(name="egress-snat", type="mark", data="ipv4_addr", category=EGRESS)
POD_IP = NftSet(name="pod-ip", type="ipv4_addr", flags=("interval",))
SNAT = NftRule(
    chain="postrouting",
    name="egress-snat",
    text="meta mark & 0x000000ff != 0x00000000 snat ip to meta mark & 0x000000ff map @egress-snat",
    order=10,
    category=EGRESS,
)
MASQUERADE = NftRule(chain="postrouting", name="masquerade", text='oifname "u0" masquerade', order=20)
MARK = NftRule(
    chain="prerouting", name="mark", text="ip saddr @pod-ip counter meta mark set 0x00000003", category=EGRESS
)
ELEMENTS = (
    NftElement(set="pod-ip", value="10.244.0.0/16"),
    NftElement(set="egress-snat", value="0x00000003", data="192.0.2.77", category=EGRESS),
)
ENTRIES: tuple[Any, ...] = (SNAT, MASQUERADE, MARK, *ELEMENTS, POSTROUTING, PREROUTING, SNAT_MAP, POD_IP)

LISTING = """\
table inet antrea {
	map egress-snat {
		type mark : ipv4_addr
		comment "4"
		elements = { 0x00000003 : 192.0.2.77 }
	}

	set pod-ip {
		type ipv4_addr
		flags interval
		comment "0"
		elements = { 10.244.0.0/16 }
	}

	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		meta mark & 0x000000ff != 0x00000000 snat ip to meta mark & 0x000000ff map @egress-snat comment "egress-snat 4.10"
		oifname "u0" masquerade comment "masquerade 0.20"
	}

	chain prerouting {
		type filter hook prerouting priority mangle; policy accept;
		ip saddr @pod-ip counter meta mark set 0x00000003 comment "mark 4.100"
	}
}
"""


@pytest.fixture(params=[Library, Program])
def nft(request: pytest.FixtureRequest, netns: Namespaces) -> Nft:
    made: Nft = request.param()
    return made


@pytest.fixture
def worker() -> Iterator[NetnsWorker]:
    worker = NetnsWorker()
    yield worker
    worker.close()


def listing(netns: Namespaces, table: str = "inet antrea") -> str:
    return netns.sh(f"nft -s list table {table}")


def rules(netns: Namespaces, chain: str) -> list[str]:
    return re.findall(r'comment "(\S+) ', netns.sh(f"nft list chain inet antrea {chain}"))


async def heard(monitor: asyncio.StreamReader, table: str) -> list[str]:
    """The lines up to the end of the generation that adds this table."""
    lines: list[str] = []
    while f"add table ip {table}" not in lines or not lines[-1].startswith("# new generation"):
        lines.append((await monitor.readline()).decode().rstrip())
    return lines


class Outside:
    """A Pod and a machine outside, and the address that the machine sees when the Pod sends."""

    def __init__(self, netns: Namespaces) -> None:
        self.pod, self.machine = netns.make(), netns.make()
        self.netns = netns
        for name, dev, node_ip, ip in (
            (self.pod, "p0", "10.244.1.1/24", "10.244.1.5/24"),
            (self.machine, "u0", "192.0.2.1/24", "192.0.2.2/24"),
        ):
            netns.sh(
                f"ip link add {dev} type veth peer name eth0 netns {name}; ip addr add {node_ip} dev {dev}"
            )
            netns.sh(f"ip link set {dev} up; echo 1 > /proc/sys/net/ipv4/ip_forward")
            netns.sh(f"ip addr add {ip} dev eth0; ip link set eth0 up", name)
        netns.sh("ip route add default via 10.244.1.1", self.pod)
        netns.sh("ip route add 10.244.0.0/16 via 192.0.2.1", self.machine)

    async def sees(self, worker: NetnsWorker) -> str:
        server = await worker.run(
            self.netns.path(self.machine), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        )
        client = await worker.run(
            self.netns.path(self.pod), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        )
        with server, client:
            server.bind(("192.0.2.2", 0))
            server.settimeout(30)
            client.sendto(b"?", server.getsockname())
            return str(server.recvfrom(16)[1][0])


async def test_a_pods_packets_leave_with_the_address_that_the_entries_say(
    netns: Namespaces, nft: Nft, worker: NetnsWorker
) -> None:
    outside, sink = Outside(netns), NftSink(nft)
    seen = [await outside.sees(worker)]
    for put, drop in (
        (ENTRIES, ()),
        ((NftElement(set="egress-snat", value="0x00000003", data="192.0.2.78", category=EGRESS),), ()),
        ((), (ELEMENTS[1],)),
        ((), (MASQUERADE,)),
    ):
        await sink.apply(put, drop)
        seen.append(await outside.sees(worker))
    assert seen == ["10.244.1.5", "192.0.2.77", "192.0.2.78", "192.0.2.1", "10.244.1.5"]
    assert "counter packets 4" in netns.sh("nft list chain inet antrea prerouting")


async def test_a_batch_in_any_order_lists_as_wanted_and_again_changes_nothing(
    netns: Namespaces, nft: Nft
) -> None:
    sink = NftSink(nft)
    for _ in range(2):
        await sink.apply(ENTRIES, ())
        assert listing(netns) == LISTING
    await sink.apply((), ENTRIES)
    assert listing(netns) == "table inet antrea {\n}\n"
    await sink.apply((), ENTRIES)


async def test_rules_stand_by_their_order_number_whoever_came_first(netns: Namespaces, nft: Nft) -> None:
    sink = NftSink(nft)
    some = {
        name: NftRule(chain="c", name=name, text="counter", order=order)
        for name, order in (("z", 1), ("b", 5), ("a", 5))
    }
    await sink.apply((NftChain(name="c"), some["b"]), ())
    await sink.apply((some["z"],), ())
    await sink.apply((some["a"],), ())
    assert rules(netns, "c") == ["z", "a", "b"]
    await sink.apply((NftRule(chain="c", name="z", text="counter", order=9),), (some["a"],))
    assert rules(netns, "c") == ["b", "z"]


async def test_a_change_of_many_things_is_one_generation_of_the_ruleset(netns: Namespaces, nft: Nft) -> None:
    command = ["ip", "netns", "exec", netns.home, "nft", "monitor"]
    monitor = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert monitor.stdout is not None
    try:
        for attempt in range(50):
            netns.sh(f"nft add table ip ready{attempt}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(heard(monitor.stdout, f"ready{attempt}"), 0.2)
                break
        await NftSink(nft).apply(ENTRIES, ())
        netns.sh("nft add table ip end")
        lines = await asyncio.wait_for(heard(monitor.stdout, "end"), 60)
    finally:
        monitor.terminate()
        await monitor.wait()
    assert sum("add rule inet antrea" in line for line in lines) == 3
    assert sum("# new generation" in line for line in lines) == 2  # ours, and that of the table "end"


async def test_what_nft_refuses_is_named_and_the_rest_is_applied(netns: Namespaces, nft: Nft) -> None:
    bad = (
        NftRule(chain="postrouting", name="typo", text="oifname antrea-gw0 masqerade"),
        NftRule(chain="no-such-chain", name="lost", text="accept"),
        NftElement(set="pod-ip", value="not-an-address"),
    )
    sink = NftSink(nft)
    with pytest.raises(Refused) as refusal:
        await sink.apply((*bad, *ENTRIES), ())
    assert set(refusal.value.entries) == set(bad)
    assert listing(netns) == LISTING
    with pytest.raises(Refused, match=r"^NftRule \('no-such-chain', 'lost'\): No such file or directory"):
        await sink.apply(bad[1:2], ())
    assert listing(netns) == LISTING


async def test_a_new_definition_of_a_set_keeps_its_elements_and_rules(netns: Namespaces, nft: Nft) -> None:
    sink = NftSink(nft)
    await sink.apply(ENTRIES, ())
    await sink.apply((NftSet(name="pod-ip", type="ipv4_addr", flags=("interval",), category=7),), ())
    assert listing(netns) == LISTING.replace('comment "0"', 'comment "7"')


async def test_after_somebody_flushed_the_ruleset_the_next_change_brings_all_back(
    netns: Namespaces, nft: Nft
) -> None:
    sink = NftSink(nft)
    await sink.apply(ENTRIES[1:], ())
    netns.sh("nft flush ruleset")
    await sink.apply(ENTRIES[:1], ())
    assert listing(netns) == LISTING


async def test_a_restart_keeps_in_force_what_it_found_until_its_category_is_swept(
    netns: Namespaces, nft: Nft
) -> None:
    old = NftSink(nft)
    gone = NftRule(
        chain="postrouting", name="gone", text='ip saddr { 10.0.0.1, 10.0.0.2 } counter comment "x"', order=5
    )
    gone = NftRule(chain="postrouting", name="gone", text="ip saddr { 10.0.0.1, 10.0.0.2 } counter", order=5)
    many = [NftElement(set="pod-ip", value=f"10.{number}.0.0/24") for number in range(20)]
    await old.apply((*ENTRIES, gone, *many, NftChain(name="empty")), ())
    found = sorted(listing(netns).splitlines())
    netns.sh("nft add table inet another")

    sink = NftSink(nft)
    await sink.resync([POSTROUTING, MASQUERADE, POD_IP])
    assert sorted(listing(netns).splitlines()) == found
    late = [ELEMENTS[0], PREROUTING]
    await sink.apply(late, ())
    assert rules(netns, "postrouting") == ["gone", "egress-snat", "masquerade"]
    await sink.sweep(0)
    assert (rules(netns, "postrouting"), rules(netns, "prerouting")) == (
        ["egress-snat", "masquerade"],
        ["mark"],
    )
    assert "10.244.0.0/16 }" in listing(netns)
    assert "10.7.0.0/24" not in listing(netns)
    await sink.sweep(EGRESS)
    assert (rules(netns, "postrouting"), rules(netns, "prerouting")) == (["masquerade"], [])
    assert "egress-snat" not in listing(netns)
    assert "table inet another" in netns.sh("nft list tables")


async def test_what_an_earlier_start_left_gives_way_to_what_is_wanted(netns: Namespaces, nft: Nft) -> None:
    await NftSink(nft).apply((POD_IP, NftElement(set="pod-ip", value="10.0.0.0/8")), ())
    sink = NftSink(nft)
    await sink.resync([POD_IP, *ELEMENTS[:1]])
    assert "elements = { 10.244.0.0/16 }" in listing(netns)


async def test_a_shield_hides_packets_from_the_kernel_and_not_from_ovs(netns: Namespaces, nft: Nft) -> None:
    pod = netns.make()
    netns.sh(
        f"ip link add p0 type veth peer name eth0 netns {pod}; ip addr add 10.0.0.1/24 dev p0; ip link set p0 up"
    )
    netns.sh("ip addr add 10.0.0.2/24 dev eth0; ip link set eth0 up", pod)
    ping = "ping -c1 -W1 10.0.0.1"
    netns.sh(ping, pod)
    sink = NftSink(nft)
    await sink.apply((NftShield("p0"),), ())
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003)) as copy:
        copy.bind(("p0", 0))
        copy.settimeout(30)
        assert netns.run(ping, pod).returncode == 1
        # a new link has things of its own to say, too
        while copy.recv(2048)[12:14] not in (b"\x08\x00", b"\x08\x06"):
            pass
    await sink.apply((), (NftShield("p0"),))
    netns.sh(ping, pod)


async def test_shields_of_interfaces_that_come_and_go_hold_nothing_up(netns: Namespaces, nft: Nft) -> None:
    sink = NftSink(nft)
    netns.sh("ip link add p0 type veth peer name p1")
    await sink.apply((NftShield("p0"), NftShield("p1"), NftShield("missing"), *ENTRIES), ())
    assert listing(netns) == LISTING
    netns.sh("ip link del p0; ip link add p0 type veth peer name p1")
    await sink.apply((NftShield("p0", "made anew"),), (NftShield("p1"), NftShield("missing")))
    assert 'device "p0"' in listing(netns, "netdev antrea")
    assert 'device "p1"' not in listing(netns, "netdev antrea")

    sink = NftSink(nft)
    await sink.resync(ENTRIES)
    assert 'device "p0"' in listing(netns, "netdev antrea")
    await sink.sweep(1)
    assert (netns.sh("nft list tables"), listing(netns)) == ("table inet antrea\n", LISTING)


async def test_a_shield_that_went_with_its_interface_costs_no_counters(netns: Namespaces, nft: Nft) -> None:
    """Kernels before 6.16 remove the chain together with the interface."""
    sink = NftSink(nft)
    netns.sh("ip link add p0 type veth peer name p1")
    counting = (
        NftChain(name="input", hook="type filter hook input priority filter;"),
        NftRule(chain="input", name="n", text="counter"),
    )
    await sink.apply((NftShield("p0"), NftShield("p1"), *counting), ())
    netns.sh("ping -c1 -W1 127.0.0.1; nft delete chain netdev antrea shield-p0; ip link del p0")
    await sink.apply((), (NftShield("p0"), NftShield("p1")))
    assert "counter packets 2 " in netns.sh("nft list chain inet antrea input")
    assert listing(netns, "netdev antrea") == "table netdev antrea {\n}\n"


class Noted:
    """Keeps what it is asked to run."""

    in_process = True

    def __init__(self, nft: Nft) -> None:
        self._nft = nft
        self.lines: list[str] = []

    def run(self, commands: str) -> str:
        self.lines += commands.splitlines()
        return self._nft.run(commands)


async def test_nothing_is_listed_but_tables_of_ours_that_stand(netns: Namespaces, nft: Nft) -> None:
    """Beside 10,000 Services of kube-proxy, nft takes 4 s for `list tables`, and 0.1 s for each table that it is asked for."""
    netns.sh(
        "nft 'add table ip kube-proxy; add table inet antrea; add table arp antrea; add table ip6 other'"
    )
    noted = Noted(nft)
    await NftSink(noted).resync(ENTRIES)
    assert {"table ip kube-proxy", "table ip6 other"} <= set(netns.sh("nft list tables").splitlines())
    assert "arp antrea" not in netns.sh("nft list tables")
    listed = [line for line in noted.lines if line.startswith("list")]
    assert listed == ["list table arp antrea", "list table inet antrea"]


def test_errors_tell_the_line_and_the_words(netns: Namespaces, nft: Nft) -> None:
    netns.sh("true")
    with pytest.raises(NftError) as error:
        nft.run("add table inet t\nadd element inet t s { 1 }\nadd table inet u\n")
    assert error.value.lines == {1: "No such file or directory"}
    assert netns.sh("nft list tables") == ""


async def test_a_tag_stands_once_however_often_it_is_put_and_may_go_with_its_interface(
    netns: Namespaces, nft: Nft
) -> None:
    sink, tag = NftSink(nft), NftTag(dev="gw0", bit=0x80000000, mac="02:e9:80:00:00:00", category=1)
    netns.sh("ip link add gw0 type veth peer name gw1; ip link set gw0 up")
    await sink.apply((*ENTRIES, tag), ())
    await sink.apply((tag,), ())
    later = NftSink(nft)
    await later.resync((*ENTRIES, tag))
    shown = netns.sh("nft list chain netdev antrea tag-gw0")
    assert shown.count("ether saddr set 02:e9:80:00:00:00") == 1
    left = NftSink(nft)
    await left.resync(ENTRIES)
    assert "tag-gw0" in netns.sh("nft list ruleset")
    netns.sh("ip link del gw0")
    await left.sweep(0)
    await later.apply((), (tag,))
    assert "tag-gw0" not in netns.sh("nft list ruleset")


@pytest.mark.parametrize("ip", ["192.0.2.9", "2001:db8::9"])
async def test_what_takes_packets_from_an_address_for_a_moment_is_swept_after_a_restart(
    netns: Namespaces, nft: Nft, ip: str
) -> None:
    netns.sh("ip link add gw0 type veth peer name gw1")
    via = "fd00::1" if ":" in ip else "10.244.1.1"
    entries = (NftRelay(ip=ip, via=via, dev="gw0", category=EGRESS), NftSilence(ip, EGRESS))
    sink = NftSink(nft)
    await sink.apply((*ENTRIES, *entries), ())
    shown = netns.sh("nft -s list ruleset")
    await sink.apply(entries, ())
    assert netns.sh("nft -s list ruleset") == shown
    later = NftSink(nft)
    await later.resync(ENTRIES)
    assert netns.sh("nft list ruleset").count("chain silence-") == 1
    await later.sweep(0)
    assert "chain relay-" not in netns.sh("nft list ruleset")
    await sink.apply((), entries)
    assert "silence-" not in netns.sh("nft list ruleset")


@pytest.mark.parametrize("ipv6", [False, True])
async def test_packets_are_passed_on_to_neighbours_while_a_later_start_knows_none(
    netns: Namespaces, nft: Nft, ipv6: bool
) -> None:
    netns.sh("ip link add gw0 type veth peer name eth0")
    hop = "2001:db8::" if ipv6 else "192.0.2."
    hops = tuple((f"02:eb:00:00:00:{number:02x}", f"{hop}{number}") for number in range(1, 40))
    entry = NftHops(ipv6=ipv6, dev="gw0", out="eth0", hops=hops)
    sink = NftSink(nft)
    await sink.apply((*ENTRIES, entry), ())
    shown = netns.sh("nft -s list ruleset")
    assert shown.count("02:eb:") == len(hops)
    later = NftSink(nft)
    await later.resync(ENTRIES)
    assert netns.sh("nft -s list ruleset").count("02:eb:") == len(hops)
    await later.apply((entry,), ())
    assert netns.sh("nft -s list ruleset") == shown
    fewer = NftHops(ipv6=ipv6, dev="gw0", out="eth0", hops=hops[:1])
    await later.apply((fewer,), ())
    assert netns.sh("nft -s list ruleset").count("02:eb:") == 1
    await later.apply((), (fewer,))
    assert "hops-" not in netns.sh("nft list ruleset")


async def test_commands_in_an_element_are_not_run_and_the_others_stand(netns: Namespaces, nft: Nft) -> None:
    """Seen without the check: the table of another program is deleted."""
    netns.sh("nft add table ip theirs")
    sink = NftSink(nft)
    begin, end = "192.0.2.77 }", "add element inet antrea egress-snat { 0x00000005 : 192.0.2.78"
    data = f"{begin}; delete table ip theirs; {end}"
    hostile = NftElement(set="egress-snat", value="0x00000004", data=data)
    with pytest.raises(Refused) as refused:
        await sink.apply((*ENTRIES, hostile), ())
    assert refused.value.entries == (hostile,)
    assert listing(netns) == LISTING
    assert "table ip theirs" in netns.sh("nft list tables")
