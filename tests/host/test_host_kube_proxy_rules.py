"""kube-proxy's rules in a real packet filter: they are seen, and go without any rule of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from antrea.antctl.doctor.gather import Host
from antrea.antctl.doctor.program import output
from antrea.antctl.failure import Failure
from antrea.antctl.kube_proxy.ipvs import left
from antrea.antctl.kube_proxy.node import read_state, remove
from antrea.outside.netlink.ipvs import VirtualServer

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Namespaces

OTHERS = """
for tool in iptables ip6tables; do
    $tool -t nat -N MINE && $tool -t nat -A PREROUTING -p tcp --dport 25 -j MINE && $tool -t nat -A MINE -j ACCEPT &&
    $tool -t filter -N KUBE-FIREWALL && $tool -t filter -A OUTPUT -j KUBE-FIREWALL &&
    $tool -t filter -A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP || exit 1
done
nft add table inet mine && nft add chain inet mine in '{ type filter hook input priority 5; policy accept; }'
"""
KUBE_PROXY = """
for tool in iptables ip6tables; do
    for chain in KUBE-SERVICES KUBE-MARK-MASQ KUBE-POSTROUTING KUBE-SVC-ABCDEFGHIJKLMNOP KUBE-SEP-ABCDEFGHIJKLMNOP; do
        $tool -t nat -N $chain || exit 1
    done
    $tool -t nat -A PREROUTING -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES &&
    $tool -t nat -A POSTROUTING -j KUBE-POSTROUTING &&
    $tool -t nat -A KUBE-MARK-MASQ -j MARK --or-mark 0x4000 &&
    $tool -t nat -A KUBE-SERVICES -p tcp --dport 80 -j KUBE-SVC-ABCDEFGHIJKLMNOP &&
    $tool -t nat -A KUBE-SVC-ABCDEFGHIJKLMNOP -m statistic --mode random --probability 0.5 -j KUBE-SEP-ABCDEFGHIJKLMNOP &&
    $tool -t nat -A KUBE-SEP-ABCDEFGHIJKLMNOP -j KUBE-MARK-MASQ &&
    $tool -t filter -N KUBE-FORWARD && $tool -t filter -I FORWARD -j KUBE-FORWARD &&
    $tool -t filter -A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP || exit 1
done
nft add table ip kube-proxy && nft add chain ip kube-proxy services
nft add chain ip kube-proxy in '{ type filter hook input priority 0; policy accept; }'
nft add rule ip kube-proxy in jump services
"""
IPVS = """
ip link add kube-ipvs0 type veth peer name other &&
ip address add 10.96.0.1/32 dev kube-ipvs0 && ip address add fd00:10:96::1/128 dev kube-ipvs0 nodad &&
ipset create KUBE-CLUSTER-IP hash:ip,port && ipset add KUBE-CLUSTER-IP 10.96.0.1,tcp:443 &&
ipset create KUBE-6-CLUSTER-IP hash:ip,port family inet6 && ipset add KUBE-6-CLUSTER-IP fd00:10:96::1,sctp:443 &&
ipset create KUBE-6-LOAD-BALANCER-SOURCE-CID hash:ip family inet6 &&
ipset create KUBE-6-NODE-PORT-LOCAL-SCTP-HAS hash:ip,port family inet6 && ipset create KUBE-NODE-PORT-TCP bitmap:port range 0-65535 &&
ipset add KUBE-NODE-PORT-TCP 30080 && ipset create MINE hash:ip && ipset create KUBE-MINE hash:ip &&
for tool in iptables; do
    for chain in KUBE-SERVICES KUBE-NODE-PORT KUBE-LOAD-BALANCER KUBE-MARK-MASQ KUBE-POSTROUTING; do
        $tool -t nat -N $chain || exit 1
    done
    $tool -t nat -A PREROUTING -j KUBE-SERVICES &&
    $tool -t nat -A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT &&
    $tool -t filter -N KUBE-IPVS-FILTER && $tool -t filter -A INPUT -j KUBE-IPVS-FILTER &&
    $tool -t filter -A INPUT -m set --match-set MINE src -j ACCEPT || exit 1
done
"""
NONE = {
    "runs": False, "tables": [], "chains": 0, "complete": False, "held": [], "ipvs": False, "ipvsAddresses": 0, "virtualServers": 0,
    "ipSets": 0, "heldAddresses": 0, "keptRoutes": 0, "proxyAll": True, "trouble": "", "listening": [],
}  # fmt: skip
GATEWAY = "antrea-gw0"
CONFIG = {"antreaProxy.proxyAll": True}


def seen(host: Host) -> dict[str, object]:
    state = read_state(host, CONFIG, {})
    del state["legacy"]  # of the kernel, which other tests may have used
    return state


def rules(netns: Namespaces) -> str:
    return netns.sh("nft -s list ruleset")


def test_all_of_kube_proxy_goes_and_nothing_else(netns: Namespaces, tmp_path: Path) -> None:
    host = Host(tmp_path)
    netns.sh(OTHERS)
    assert seen(host) == NONE
    before = rules(netns)
    netns.sh(KUBE_PROXY)
    assert seen(host) == {**NONE, "chains": 12, "tables": ["ip kube-proxy"]}
    remove(host, GATEWAY)
    assert seen(host) == NONE
    left = rules(netns)
    assert [line for line in before.splitlines() if line not in left] == []
    assert "KUBE-SERVICES" not in left
    assert netns.sh("iptables-save").count("-j KUBE-") == 1  # kubelet's


def test_rules_that_go_with_their_table_are_not_read(
    netns: Namespaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of 10,000 Services in mode nftables are 100 MB of JSON, which takes nft 16 s."""
    host, asked = Host(tmp_path), list[str]()

    def noted(*command: str, **more: Any) -> str:
        asked.append(" ".join(command))
        return output(*command, **more)

    monkeypatch.setattr("antrea.antctl.kube_proxy.node.output", noted)
    netns.sh(OTHERS + KUBE_PROXY + "nft add table ip6 kube-proxy; nft add table inet antrea")
    assert seen(host) == {
        **NONE,
        "chains": 12,
        "tables": ["ip kube-proxy", "ip6 kube-proxy"],
        "complete": True,
    }
    listed = [f"{family} {table}" for family in ("ip", "ip6") for table in ("filter", "nat")]
    assert asked == [f"nft -j list table {table}" for table in (*listed, "inet mine")]


def test_chains_that_another_program_uses_stay_with_all_they_lead_to(
    netns: Namespaces, tmp_path: Path
) -> None:
    host = Host(tmp_path)
    netns.sh(OTHERS + KUBE_PROXY + "iptables -t nat -I MINE -p udp -j KUBE-SVC-ABCDEFGHIJKLMNOP")
    assert seen(host)["held"] == ["ip nat MINE -> KUBE-SVC-ABCDEFGHIJKLMNOP"]
    remove(host, GATEWAY)
    saved = netns.sh("iptables-save -t nat")
    chains = {line[1:].split()[0] for line in saved.splitlines() if line.startswith(":KUBE")}
    assert chains == {"KUBE-SVC-ABCDEFGHIJKLMNOP", "KUBE-SEP-ABCDEFGHIJKLMNOP", "KUBE-MARK-MASQ"}
    assert "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000" in saved


def test_what_mode_ipvs_leaves_goes_and_nothing_else(netns: Namespaces, tmp_path: Path) -> None:
    host = Host(tmp_path)
    netns.sh(IPVS)
    assert seen(host) == {**NONE, "chains": 6, "ipvs": True, "ipvsAddresses": 2, "ipSets": 5}
    remove(host, GATEWAY)
    assert seen(host) == NONE
    assert sorted(netns.sh("ipset list -name").split()) == ["KUBE-MINE", "MINE"]
    assert "--match-set MINE src -j ACCEPT" in netns.sh("iptables-save")


def test_virtual_servers_are_known_when_a_removal_was_interrupted(
    netns: Namespaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their addresses are gone already; the kernel's list is given, since this machine's kernel may lack IPVS."""
    table = tmp_path / "ip_vs"
    table.write_text(
        "TCP  0A600001:01BB rr\n  -> 0A0A0007:1F90 Masq 1 0 0\nTCP  0A600001:0050 rr\n"
        "SCTP [fd00:0010:0096:0000:0000:0000:0000:0001]:01BB sh\nTCP  AC1E000B:7580 rr\nUDP  C0000201:01BB rr\n"
    )
    monkeypatch.setattr("antrea.outside.netlink.ipvs.TABLE", table)
    netns.sh(IPVS)
    assert len(left().servers) == 4
    netns.sh("ip link delete kube-ipvs0")
    assert set(left().servers) == {
        VirtualServer("TCP", "10.96.0.1", 443),
        VirtualServer("SCTP", "fd00:10:96::1", 443),
        VirtualServer("TCP", "172.30.0.11", 30080),
    }


def test_kube_proxy_is_complete_when_its_chains_are_filled_in_all_families(
    netns: Namespaces, tmp_path: Path
) -> None:
    host = Host(tmp_path)
    fill = "-t nat -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN"
    netns.sh(IPVS + "ip6tables -t nat -N KUBE-POSTROUTING")
    assert not seen(host)["complete"]
    netns.sh(f"iptables {fill}")
    assert not seen(host)["complete"]
    netns.sh(f"ip6tables {fill}")
    assert seen(host)["complete"]


def test_kube_proxy_is_complete_when_its_tables_stand_in_all_families(
    netns: Namespaces, tmp_path: Path
) -> None:
    host = Host(tmp_path)
    for family, complete in (("ip6", False), ("ip", True)):
        netns.sh(f"nft add table {family} kube-proxy")
        assert seen(host)["complete"] is complete


def test_an_ipset_that_another_program_uses_is_named_and_the_others_go(
    netns: Namespaces, tmp_path: Path
) -> None:
    netns.sh(IPVS + "iptables -A INPUT -m set --match-set KUBE-NODE-PORT-TCP dst -j ACCEPT")
    with pytest.raises(OSError, match="a rule of another program uses an ipset"):
        remove(Host(tmp_path), GATEWAY)
    assert sorted(netns.sh("ipset list -name").split()) == ["KUBE-MINE", "KUBE-NODE-PORT-TCP", "MINE"]


def test_nothing_goes_while_kube_proxy_runs(netns: Namespaces, tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/comm").write_text("kube-proxy\n")
    host = Host(tmp_path)
    netns.sh(KUBE_PROXY)
    with pytest.raises(Failure, match="kube-proxy runs on this Node"):
        remove(host, GATEWAY)
    assert (seen(host)["runs"], seen(host)["chains"]) == (True, 12)
