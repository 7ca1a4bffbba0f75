"""The doctor before a real packet filter: a fault is made, found, and gone after the command that the finding names."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from antrea.antctl.doctor.checks import findings
from antrea.antctl.doctor.gather import Host, gateways, path_sizes, peers
from antrea.antctl.doctor.packet_filter import chains
from antrea.antctl.doctor.program import output
from antrea.antctl.doctor.state import CniFile, Finding, NodeState, Peer
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import AntreaProxy
from antrea.engine import Facts
from antrea.facts.node import PeerNode, ThisNode, Transport
from antrea.facts.service import ServicePort
from antrea.features.node_route.agent_part.reachability import Reachability
from antrea.features.proxy.agent_part.invalid_drop import InvalidDropReport
from antrea.host.invalid_drop import CONDITION
from antrea.outside.netlink.reach import device_to

if TYPE_CHECKING:
    from conftest import Namespaces

KUBE_PROXY = """
for tool in iptables ip6tables iptables-legacy; do
    $tool -t nat -N KUBE-SERVICES && $tool -t nat -A PREROUTING -j KUBE-SERVICES &&
    $tool -t filter -N KUBE-FORWARD && $tool -t filter -A FORWARD -j KUBE-FORWARD &&
    $tool -t filter -A FORWARD -i eth9 -j ACCEPT || exit 1
done
nft add table ip kube-proxy && nft add chain ip kube-proxy services
"""
FIREWALL = """
nft add table inet firewalld
nft add chain inet firewalld filter_FORWARD '{ type filter hook forward priority 10; policy accept; }'
nft add rule inet firewalld filter_FORWARD ct state established,related accept
nft add rule inet firewalld filter_FORWARD counter reject with icmpx admin-prohibited
"""


INVALID = "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP"
OTHERS = (
    "-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    "-A MINE -m conntrack --ctstate INVALID -j DROP",
)
IN_NFTABLES = """
nft add table ip6 kube-proxy
nft add chain ip6 kube-proxy forward '{ type filter hook forward priority 0; }'
nft add rule ip6 kube-proxy forward ct state established accept
nft add rule ip6 kube-proxy forward ct state invalid counter drop
"""


def found(**config: object) -> list[Finding]:
    """What is wrong with the packet filter of this namespace."""
    return findings(NodeState(cni_files=(CniFile("10-antrea.conflist"),), chains=chains(), config=config))


def repair(netns: Namespaces, rows: list[Finding]) -> None:
    for row in rows:
        netns.sh(row.repair)


def test_what_kube_proxy_left_goes_and_nothing_else(netns: Namespaces) -> None:
    netns.sh(KUBE_PROXY)
    assert found() == []
    rows = found(**{"antreaProxy.proxyAll": True})
    assert [row.repair for row in rows] == [
        "ip6tables-save | grep -v KUBE | ip6tables-restore",
        "iptables-save | grep -v KUBE | iptables-restore",
        "iptables-legacy-save | grep -v KUBE | iptables-legacy-restore",
        "nft delete table ip kube-proxy",
    ]
    repair(netns, rows)
    assert found(**{"antreaProxy.proxyAll": True}) == []
    assert "-A FORWARD -i eth9 -j ACCEPT" in netns.sh("iptables-save")


@pytest.mark.parametrize(
    ("fault", "severity", "text"),
    [
        ("iptables -P FORWARD DROP", "error", "FORWARD of table ip filter drops"),
        ("ip6tables -P FORWARD DROP", "error", "FORWARD of table ip6 filter drops"),
        ("iptables -A FORWARD -j REJECT", "error", "FORWARD of table ip filter drops"),
        ("iptables-legacy -P FORWARD DROP", "error", "FORWARD of table ip filter drops"),
        ("ip6tables-legacy -A FORWARD -j REJECT", "error", "FORWARD of table ip6 filter drops"),
        (
            "iptables-legacy -P FORWARD DROP; iptables-legacy -A FORWARD -p tcp --dport 25 -j ACCEPT",
            "warning",
            "FORWARD of table ip filter drops, unless one of its rules lets it pass,",
        ),
        (
            FIREWALL,
            "warning",
            "filter_FORWARD of table inet firewalld drops, unless one of its rules lets it pass,",
        ),
    ],
)
def test_a_foreign_drop_is_found_until_packets_of_pods_pass(
    netns: Namespaces, fault: str, severity: str, text: str
) -> None:
    netns.sh(fault)
    rows = found()
    assert [(row.check, row.severity, row.finding) for row in rows] == [
        ("foreign-drops", severity, f"chain {text} what Pods send out of the Node")
    ]
    repair(netns, rows)
    assert found() == []


def test_a_drop_of_some_packets_is_a_firewalls_own_business(netns: Namespaces) -> None:
    netns.sh(
        "iptables -A FORWARD -p tcp --dport 25 -j DROP; ip6tables -A FORWARD -m conntrack --ctstate INVALID -j DROP"
    )
    assert found() == []


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ("iptables", "chain KUBE-FORWARD of table ip filter"),
        ("ip6tables", "chain KUBE-FORWARD of table ip6 filter"),
        (IN_NFTABLES, "chain forward of table ip6 kube-proxy"),
    ],
)
async def test_kube_proxys_rule_that_drops_invalid_packets_is_named_while_endpoints_answer_directly(
    netns: Namespaces, fault: str, place: str
) -> None:
    netns.sh(with_invalid_drop(fault))
    facts, events = Facts(), asyncio.Queue[tuple[str, str]]()
    facts.put(AgentConfig(antrea_proxy=AntreaProxy(proxy_all=True)))
    report = InvalidDropReport(facts, lambda *event: events.put_nowait(event), look_seconds=0.05)
    assert await report.check() == ""
    facts.put(ServicePort("shop/web", "", "TCP", 80, ("10.96.0.10",), ("198.51.100.8",), direct=True))
    run = asyncio.create_task(report.run())
    reason, message = await asyncio.wait_for(events.get(), 10)
    assert (reason, place in message) == (CONDITION, True)
    assert report.message == message
    (row,) = await asyncio.to_thread(found_invalid, message)
    assert f"remove it with: {row.repair};" in message
    before = netns.sh("iptables-save; ip6tables-save; nft list tables")
    repair(netns, [row])
    async with asyncio.timeout(10):
        while report.message:  # noqa: ASYNC110 (a thread looks)
            await asyncio.sleep(0.01)
    run.cancel()
    assert events.empty()
    left = netns.sh("iptables-save; ip6tables-save; nft list tables").splitlines()
    gone = [line for line in before.splitlines() if line not in left and not line.startswith("#")]
    assert gone == ([INVALID] if "tables" in fault and "nft" not in fault else [])


def with_invalid_drop(fault: str) -> str:
    """The rule, made by a tool of iptables or by a script, among others."""
    if fault == IN_NFTABLES:
        return fault
    rules = (INVALID, *OTHERS)
    return " && ".join(f"{fault} {words}" for words in ("-N KUBE-FORWARD", "-N MINE", *rules))


def found_invalid(message: str) -> list[Finding]:
    """What the doctor finds while the agent has the condition."""
    well = NodeState(cni_files=(CniFile("10-antrea.conflist"),), chains=chains(drops_invalid=True))
    return findings(well._replace(conditions={CONDITION: message}))


SERVED = """
nft -f - <<'END'
table ip kube-proxy {
  chain service-2QRHZV4L-shop/web/tcp/http { accept; }
  chain services { goto service-2QRHZV4L-shop/web/tcp/http; }
  chain filter-forward { type filter hook forward priority -110; jump services; }
}
table inet antrea { chain forward { type filter hook forward priority 0; accept; }; }
END
"""
LOGGED = """#!/bin/sh
echo "$*" >> "$0.log"
exec {nft} "$@"
"""


def test_no_rules_are_read_but_of_chains_that_may_drop_what_pods_send(
    netns: Namespaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole ruleset is 100 MB of JSON beside 10,000 Services of kube-proxy."""
    netns.sh(f"{FIREWALL}\n{IN_NFTABLES}\n{SERVED}\niptables -P FORWARD DROP")
    program = tmp_path / "nft"
    program.write_text(LOGGED.format(nft=shutil.which("nft")))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    names = {chain.name for chain in chains()}
    assert names == {"FORWARD", "filter_FORWARD", "forward", "services", "filter-forward"}
    asked = (tmp_path / "nft.log").read_text().splitlines()
    assert asked == ["-j list chain ip filter FORWARD", "-j list chain inet firewalld filter_FORWARD"]


def test_a_program_that_prints_without_end_or_does_not_end_gives_no_answer() -> None:
    with pytest.raises(OSError, match="yes prints more than 1000 characters"):
        output("yes", most=1000)
    with pytest.raises(subprocess.TimeoutExpired):
        output("sleep", "60", seconds=0.1)


def test_a_rule_of_iptables_legacy_that_drops_invalid_packets_goes(netns: Namespaces) -> None:
    netns.sh(with_invalid_drop("iptables-legacy"))
    rows = found_invalid("the agent does not see it")
    repair(netns, rows)
    left = netns.sh("iptables-legacy-save -t filter").splitlines()
    assert [line for line in (INVALID, *OTHERS) if line not in left] == [INVALID]


def test_a_firewall_on_the_gossip_port_is_found_and_a_refusal_is_not(netns: Namespaces) -> None:
    netns.sh("ip addr add 10.0.0.2/32 dev lo")
    nodes = [
        {"metadata": {"name": name}, "status": {"addresses": [{"type": "InternalIP", "address": ip}]}}
        for name, ip in (("n1", "127.0.0.1"), ("n2", "10.0.0.2"))
    ]

    def seen() -> list[Finding]:
        well = NodeState(cni_files=(CniFile("10-antrea.conflist"),), peers=peers(nodes, "n1", 10351))
        return findings(well)

    assert seen() == []
    netns.sh("iptables -A INPUT -d 10.0.0.2 -p tcp --dport 10351 -j DROP")
    rows = seen()
    assert [(row.check, row.severity) for row in rows] == [("gossip-port", "error")]
    assert "port 10351 of Node n2 (10.0.0.2) does not answer" in rows[0].finding
    repair(netns, rows)
    assert seen() == []


async def test_a_tunnel_that_carries_nothing_and_a_route_by_another_card_are_found_by_doctor_and_agent(
    netns: Namespaces,
) -> None:
    netns.sh(
        "ip link add eth1 type veth peer name far; ip link set eth1 up; ip link set far up; ip addr add 198.51.100.1/24 dev eth1"
    )
    netns.sh("for ip in 192.0.2.2 10.10.2.1; do ip addr add $ip/32 dev lo; done")
    assert (device_to("198.51.100.2"), device_to("203.0.113.1")) == ("eth1", "")
    peer = PeerNode("n2", ("10.10.2.0/24",), ("192.0.2.2",), ("198.51.100.2",))
    facts, events = Facts(), list[tuple[str, str, bool]]()
    for row in (ThisNode("n1", ("10.10.1.0/24",), ("192.0.2.1",), ("198.51.100.1",)), peer):
        facts.put(row)
    facts.put(Transport("eth0", "eth0", "0a:00:00:00:00:02", 1500, ("192.0.2.1/24",)))
    agent = Reachability(facts, 10351, lambda *event: events.append(event), {})
    await agent.probe_round()
    await agent.probe_round()
    assert events == []

    netns.sh("iptables -A INPUT -d 10.10.2.1 -p tcp -j DROP")
    await agent.probe_round()
    await agent.probe_round()
    ((reason, why, warning),) = events
    assert (reason, warning, agent.conditions["PodsUnreachable"]()) == ("PodsUnreachable", True, why)
    assert "10.10.2.1 of Node n2 does not answer through the tunnel to 198.51.100.2" in why
    assert "leave by eth1, and not by eth0" in why

    nodes = [
        {
            "metadata": {"name": "n2"},
            "spec": {"podCIDRs": ["10.10.2.0/24"]},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.2"}]},
        }
    ]
    state = await asyncio.to_thread(
        lambda: NodeState(
            cni_files=(CniFile("10-antrea.conflist"),),
            transport="eth0",
            peers=peers(nodes, "n1", 10351),
            pod_peers=peers(nodes, "n1", 10351, gateways),
            devices={"192.0.2.2": device_to("198.51.100.2")},
        )
    )
    rows = findings(state)
    assert [(row.check, row.severity) for row in rows] == [("transport", "warning"), ("tunnels", "error")]

    netns.sh("iptables -F INPUT")
    await agent.probe_round()
    assert [event[0] for event in events] == ["PodsUnreachable", "PodsReachable"]


def test_a_module_that_the_kernel_lacks_is_found(tmp_path: Path) -> None:
    loaded = min(place.name for place in Path("/sys/module").iterdir())
    missing = Host(tmp_path).missing_modules([loaded, "antrea_none"])
    (row,) = findings(NodeState(cni_files=(CniFile("10-antrea.conflist"),), missing_modules=missing))
    assert (row.check, row.severity, row.repair) == ("kernel-modules", "error", "modprobe antrea_none")


async def test_a_way_with_a_smaller_mtu_than_both_cards_is_found(netns: Namespaces) -> None:
    """The switch between drops long frames, and says nothing to either."""
    switch, peer = netns.make(), netns.make()
    netns.sh(
        f"ip link add eth1 type veth peer name one netns {switch}; ip link set eth1 up; "
        "ip addr add 192.0.2.1/24 dev eth1; ip addr add fd00::1/64 dev eth1 nodad"
    )
    netns.sh(f"ip link add eth1 type veth peer name two netns {switch}; ip link set eth1 up", peer)
    netns.sh("ip addr add 192.0.2.2/24 dev eth1; ip addr add fd00::2/64 dev eth1 nodad", peer)
    netns.sh("ip link add br0 type bridge; ip link set br0 up", switch)
    netns.sh("for port in one two; do ip link set $port master br0; ip link set $port up; done", switch)
    # a new bridge loses the first packets
    netns.sh("for ip in 192.0.2.2 fd00::2; do until ping -q -c 1 -W 1 $ip; do :; done; done")
    others = (Peer("n2", "192.0.2.2"), Peer("n2", "fd00:0::2"), Peer("n3", "192.0.2.3"))

    def sizes() -> dict[str, int]:
        return {one.address: one.carried for one in path_sizes(others, 1500, 1500)}

    assert await asyncio.to_thread(sizes) == {"192.0.2.2": 1500, "fd00::2": 1500}
    netns.sh("ip link set one mtu 1400; ip link set two mtu 1400", switch)
    found = await asyncio.to_thread(sizes)
    assert found == {"192.0.2.2": 1396, "fd00::2": 1396}
    assert path_sizes(others, 1550, 1500) == ()
    netns.sh(
        "iptables -A INPUT -p icmp -j DROP; ip6tables -A INPUT -p icmpv6 --icmpv6-type echo-request -j DROP",
        peer,
    )
    assert await asyncio.to_thread(sizes) == {}
