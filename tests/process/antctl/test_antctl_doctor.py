"""Each check of the doctor: what it says of a faulty Node, and nothing of a well one."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from click.testing import CliRunner
from loopback import answering

from antrea.antctl import mode
from antrea.antctl.doctor.checks import CHECKS, controller, findings, pod_mtus
from antrea.antctl.doctor.gather import (
    Host,
    NodeInspector,
    gateways,
    gather,
    needed_modules,
    peers,
    service_trouble,
    skew,
)
from antrea.antctl.doctor.packet_filter import chains_of
from antrea.antctl.doctor.state import Chain, CniFile, Finding, NodeState, OvsInterface, Peer
from antrea.antctl.failure import Failure
from antrea.antctl.main import antctl
from antrea.antctl.request import Server
from antrea.features.service_external_ip.doctor import STRICT_ARP
from antrea.host.invalid_drop import LIBERAL
from antrea.outside.kube.access import Access

if TYPE_CHECKING:
    from pathlib import Path

DROP: dict[str, Any] = {"drop": None}
COUNTER = {"counter": {"packets": 1, "bytes": 60}}


def passes(way: str, device: str = "antrea-gw0") -> tuple[dict[str, Any], ...]:
    """A rule that lets packets from or to a device pass, as libnftables tells it."""
    match = {"match": {"op": "==", "left": {"meta": {"key": way}}, "right": device}}
    return match, COUNTER, {"accept": None}


FORWARD = Chain("ip", "filter", "FORWARD", "forward", "drop")
ZONES = Chain("inet", "firewalld", "filter_FORWARD", "forward", "accept", ((COUNTER, {"reject": {}}),))
NO_ENCAP = {"trafficEncapMode": "noEncap"}
EDIT = "kubectl -n kube-system edit configmap antrea-config"
PROXY_ALL = {"antreaProxy.proxyAll": True}
INVALID = {"InvalidPacketsDropped": "a rule drops"}
XT_CONNTRACK = {"xt": {"type": "match", "name": "conntrack"}}
OURS = CniFile("10-antrea.conflist", ("antrea", "portmap", "bandwidth"))
WELL = NodeState(
    name="n1",
    pod="kube-system/antrea-agent-x",
    cni_files=(CniFile("00-multus.conf", ("multus",)), OURS),
    chains=(
        Chain("ip", "filter", "FORWARD", "forward", "accept"),
        Chain("ip", "mangle", "KUBE-KUBELET-CANARY"),
    ),
    mtus={"eth0": 1500, "antrea-gw0": 1450},
    pod_mtu=1450,
    transport="eth0",
    processes=frozenset(("kubelet", "kube-proxy")),
    interfaces=(OvsInterface("antrea-gw0"), OvsInterface("web-0-1a2b3c")),
    peers=(Peer("n2", "10.0.0.2"),),
    pod_peers=(Peer("n2", "10.244.1.1"),),
    devices={"10.0.0.2": "eth0"},
    skew=-3.0,
)


def said(**changes: Any) -> list[tuple[str, str, str]]:
    """Check, severity and repair of what is found when this differs from the well Node."""
    return [(row.check, row.severity, row.repair) for row in findings(WELL._replace(**changes))]


def test_nothing_is_said_of_a_well_node() -> None:
    assert findings(WELL) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"cni_files": (CniFile("05-cilium.conflist", ("cilium-cni",)), OURS, CniFile("99 x.conf"))},
            [
                ("cni-configs", "error", "mv /etc/cni/net.d/05-cilium.conflist /etc/cni/net.d/05-cilium.conflist.disabled"),
                ("cni-configs", "warning", "mv '/etc/cni/net.d/99 x.conf' '/etc/cni/net.d/99 x.conf.disabled'"),
            ],
        ),
        ({"cni_files": ()}, [("cni-configs", "error", "kubectl -n kube-system delete pod antrea-agent-x")]),
        # chaining behind another plugin is what that mode is for
        ({"cni_files": (CniFile("05-aws.conflist", ("aws-cni",)), OURS), "config": {"trafficEncapMode": "networkPolicyOnly"}}, []),
        ({"conditions": {"ConfigRejected": "antrea-agent.conf: no"}, "unknown_keys": ("x", "y")}, [("config", "error", EDIT), *[("config", "warning", EDIT)] * 2]),
        # without kubeAPIServerOverride agents find kube-apiserver by kube-proxy
        ({"config": PROXY_ALL}, [("kube-proxy", "error", f"{EDIT}  # set antreaProxy.proxyAll: false in antrea-agent.conf")]),
        (
            {"config": PROXY_ALL | {"kubeAPIServerOverride": "https://192.0.2.1:6443"}},
            [("kube-proxy", "error", "antctl kube-proxy takeover --apply  # --rollback gives all back")],
        ),
        (
            {
                "config": PROXY_ALL,
                "processes": frozenset(),
                "mtus": {**(WELL.mtus or {}), "kube-ipvs0": 1500},
                "chains": (
                    *(WELL.chains or ()),
                    Chain("ip", "nat", "KUBE-SERVICES"),
                    Chain("ip6", "nat", "KUBE-NODEPORTS"),
                    Chain("ip", "kube-proxy", "services"),
                ),
            },
            [
                ("kube-proxy", "error", "ip6tables-save | grep -v KUBE | ip6tables-restore"),
                ("kube-proxy", "error", "iptables-save | grep -v KUBE | iptables-restore"),
                ("kube-proxy", "error", "nft delete table ip kube-proxy"),
                (
                    "kube-proxy",
                    "error",
                    "kubectl -n kube-system exec antrea-agent-x -c antrea-agent -- antctl kube-proxy node --clean",
                ),
            ],
        ),
        ({"config": PROXY_ALL, "processes": frozenset()}, []),
        (
            {"interfaces": (OvsInterface("gone0", "No such device"),)},
            [("ovs-ports", "warning", "kubectl -n kube-system exec antrea-agent-x -c antrea-ovs -- ovs-vsctl --if-exists del-port br-int gone0")],
        ),
        ({"mtus": {"eth0": 1500, "antrea-gw0": 1400}}, [("mtu", "warning", "ip link set dev antrea-gw0 mtu 1450")]),
        ({"mtus": {"eth0": 1499, "antrea-gw0": 1450}}, [("mtu", "error", "ip link set dev eth0 mtu 1500")]),
        (
            {"mtus": {"eth0": 1500}, "pod_mtu": 9000, "config": {"defaultMTU": 9000}},
            [("mtu", "error", f"{EDIT}  # set defaultMTU: 1450 in antrea-agent.conf, or 0")],
        ),
        ({"mtus": {"eth0": 1492}, "config": {"tunnelType": "gre"}}, []),
        ({"mtus": {"eth0": 1491}, "config": {"tunnelType": "gre"}}, [("mtu", "error", "ip link set dev eth0 mtu 1492")]),
        ({"mtus": {"eth0": 1500}, "peers": (Peer("n2", "fd00::2"),)}, [("mtu", "error", "ip link set dev eth0 mtu 1520")]),
        ({"conditions": {"OpenflowConnectionUp": "no answer"}}, [("switch", "error", "kubectl -n kube-system delete pod antrea-agent-x")]),
        ({"conditions": {"OVSDBConnectionUp": "disconnected"}}, [("ovsdb", "error", "kubectl -n kube-system delete pod antrea-agent-x")]),
        (
            {"conditions": {"ControllerConnectionUp": "refused", "AgentHealthy": "refused"}},
            [("controller-connection", "error", "kubectl -n kube-system logs antrea-agent-x -c antrea-agent --tail=20")],
        ),
        ({"mtus": {"eth0": 1450}, "config": NO_ENCAP}, []),
        ({"mtus": {"eth0": 1000}, "pod_mtu": 0}, []),
        (
            {"peers": (Peer("n2", "10.0.0.2", "lost"), Peer("n3", "fd00::3", "lost")), "config": {"clusterPort": 7}},
            [
                ("gossip-port", "error", "iptables -I INPUT -p tcp --dport 7 -j ACCEPT && iptables -I INPUT -p udp --dport 7 -j ACCEPT"),
                ("gossip-port", "error", "ip6tables -I INPUT -p tcp --dport 7 -j ACCEPT && ip6tables -I INPUT -p udp --dport 7 -j ACCEPT"),
            ],
        ),
        ({"missing_modules": ("openvswitch",)}, [("kernel-modules", "error", "modprobe openvswitch")]),
        (
            {"chains": (FORWARD, FORWARD._replace(table="antrea"))},
            [("foreign-drops", "error", "iptables -I FORWARD -i antrea-gw0 -j ACCEPT && iptables -I FORWARD -o antrea-gw0 -j ACCEPT")],
        ),
        (
            {"chains": (ZONES,), "config": {"hostGateway": "gw"}},
            [("foreign-drops", "error", "nft insert rule inet firewalld filter_FORWARD iifname gw accept && nft insert rule inet firewalld filter_FORWARD oifname gw accept")],
        ),
        ({"conditions": {"NodePortLocalPortsExhausted": "no port is free"}}, [("node-port-local", "error", EDIT)]),
        ({"conditions": {"FlowCollectorUnreachable": "no answer"}}, [("flow-collector", "warning", EDIT)]),
        ({"conditions": {"TrafficControlPortsMissing": "'tap1' of mirror"}}, [("traffic-control", "error", "ip link show")]),
        ({"conditions": {"TrafficControlBypassed": "a"}}, [("traffic-control", "warning", "kubectl get trafficcontrols,acnp,annp -A")]),
        ({"conditions": {"TrafficControlOverlapped": "a"}}, [("traffic-control", "warning", "kubectl get trafficcontrols,acnp,annp -A")]),
        ({"conditions": {"L7EngineDown": "not running"}}, [("l7-engine", "error", "kubectl -n kube-system logs antrea-agent-x -c antrea-l7-engine")]),
        ({"conditions": {"FqdnCacheNearlyFull": "nearly"}}, [("fqdn-cache", "warning", "kubectl -n kube-system exec antrea-agent-x -c antrea-agent -- antctl get fqdncache")]),
        ({"conditions": {"FqdnServersUntrusted": "asked"}}, [("fqdn-servers", "warning", EDIT)]),
        ({"conditions": {"StrictARPMissing": "every Node answers"}}, [("strict-arp", "error", STRICT_ARP)]),
        ({"conditions": {"ExternalIPsUnheard": "no neighbour answers"}}, [("external-ips", "error", "ip neigh; ip -s link")]),
        ({"conditions": {"LoadBalancerModeUnavailable": "nft refuses"}}, [("load-balancer-mode", "warning", "modprobe -a nft_dup_ipv4 nft_dup_ipv6")]),
        ({"conditions": INVALID}, [("invalid-packets", "warning", LIBERAL)]),
        (
            {
                "conditions": INVALID,
                "processes": frozenset(),
                "chains": (
                    Chain("ip", "filter", "KUBE-FORWARD", rules=((XT_CONNTRACK, COUNTER, DROP),)),
                    Chain("ip6", "filter", "KUBE-FORWARD", rules=((XT_CONNTRACK, COUNTER, {"accept": None}),)),
                    Chain("ip", "filter", "MINE", rules=((XT_CONNTRACK, COUNTER, DROP),)),
                ),
            },
            [("invalid-packets", "warning", "iptables -S KUBE-FORWARD | sed -n '/INVALID.*DROP/s/^-A/iptables -D/p' | sh")],
        ),
        ({"skew": 30.0}, [("time-skew", "warning", "timedatectl set-ntp true")]),
        ({"skew": -3600.0}, [("time-skew", "error", "timedatectl set-ntp true")]),
    ],
)  # fmt: skip
def test_a_fault_is_said_with_its_repair(
    changes: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    assert said(**changes) == expected


def test_what_the_user_wrote_and_is_not_done_is_said_in_words() -> None:
    key = "unknown key defaltMTU is ignored: did you mean defaultMTU?"
    node = WELL._replace(conditions={"ConfigRejected": "antrea-agent.conf: many"}, unknown_keys=(key,))
    assert [row.finding for row in findings(node)] == [
        "the configuration is refused, the last good configuration stays in effect: antrea-agent.conf: many",
        f"antrea-agent.conf: {key}",
    ]


def test_a_refused_configuration_of_the_controller_is_said_at_its_node() -> None:
    info: dict[str, Any] = {"nodeRef": {"name": "n2"}, "podRef": {"namespace": "net"}}
    healthy = {"type": "ControllerHealthy", "status": "True"}
    assert list(controller({**info, "controllerConditions": [healthy]})) == []
    refused = {"type": "ConfigRejected", "status": "True", "message": "apiPort: many"}
    text = "the controller's configuration is refused, the last good configuration stays in effect: apiPort: many"
    repair = "kubectl -n net edit configmap antrea-config"
    assert list(controller({**info, "controllerConditions": [healthy, refused]})) == [
        Finding("n2", "error", "config", text, repair)
    ]


async def test_what_the_agent_tells_of_its_configuration_is_seen() -> None:
    rejected = {"type": "ConfigRejected", "status": "True", "message": "apiPort: many"}
    exhausted = {"type": "NodePortLocalPortsExhausted", "status": "True", "message": "no port is free"}
    answers: dict[str, Any] = {
        "/config": [{"key": "ovsBridge", "value": "br-none"}],
        "/config/unknown": ["unknown key x is ignored"],
        "/agentinfo": {
            "agentConditions": [{"type": "AgentHealthy", "status": "True"}, rejected, exhausted],
        },
    }

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.json_response(answers[request.path])

    def nowhere(_: object) -> Server:
        raise Failure("no kubeconfig")

    async with answering(answer) as url:
        agent = Server(Access(url=url), 60.0)
        node = await asyncio.to_thread(gather, agent, nowhere, {})
        assert node.unknown_keys == ("unknown key x is ignored",)
        assert node.conditions is not None
        assert node.conditions["ConfigRejected"] == "apiPort: many"
        assert node.conditions["NodePortLocalPortsExhausted"] == "no port is free"
        answers["/agentinfo"] = {}
        node = await asyncio.to_thread(gather, agent, nowhere, {})
        assert node.conditions == {}


CONDITION = {"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "tcp"}}


@pytest.mark.parametrize(
    ("rules", "severity"),
    [
        ((), "error"),
        ((passes("iifname"), passes("oifname")), ""),
        ((passes("iifname"),), "error"),
        (((COUNTER, DROP), passes("iifname"), passes("oifname")), "error"),
        (((COUNTER, {"xt": {"type": "target", "name": "REJECT"}}), passes("iifname"), passes("oifname")), "error"),
        (((COUNTER, {"jump": {"target": "KUBE-FORWARD"}}),), "error"),
        # whether these let pass what Pods send is not known
        ((passes("iifname"), passes("oifname", "other")), "warning"),
        (((COUNTER, {"jump": {"target": "DOCKER-USER"}}),), "warning"),
        (((CONDITION, *passes("iifname")), passes("oifname")), "warning"),
        (((passes("iifname")[0], CONDITION, {"accept": None}), passes("oifname")), "warning"),
        # a rule that drops some packets only is a firewall's own business
        (((CONDITION, DROP), passes("iifname"), passes("oifname")), ""),
        ((({"xt": {"type": "match", "name": "statistic"}}, DROP), passes("iifname"), passes("oifname")), ""),
    ],
)  # fmt: skip
def test_a_drop_counts_unless_packets_of_pods_pass_before_it(
    rules: tuple[tuple[dict[str, Any], ...], ...], severity: str
) -> None:
    expected = [severity] if severity else []
    assert [row[1] for row in said(chains=(FORWARD._replace(rules=rules),))] == expected


def test_rules_of_iptables_legacy_are_read_as_those_of_nft() -> None:
    saved = """# Generated
*filter
:FORWARD DROP [0:0]
:KUBE-FORWARD - [0:0]
-A FORWARD -i antrea-gw0 -j ACCEPT
-A FORWARD ! -i eth0 -p tcp -j KUBE-FORWARD
-A KUBE-FORWARD -j REJECT --reject-with icmp-port-unreachable
COMMIT
"""
    assert chains_of(saved, "ip", "iptables-legacy") == (
        Chain(
            *("ip", "filter", "FORWARD", "forward", "drop"),
            rules=(
                (passes("iifname")[0], {"accept": None}),
                ({"match": {"condition": "! -i eth0 -p tcp"}}, {"jump": {"target": "KUBE-FORWARD"}}),
            ),
            tool="iptables-legacy",
        ),
        Chain("ip", "filter", "KUBE-FORWARD", rules=(({"reject": None},),), tool="iptables-legacy"),
    )


NETDEV = {"ovsDatapathType": "netdev"}
SILENT = "no answer within 2 s, as if a firewall dropped it"
CARD = f"{EDIT}  # set transportInterface in antrea-agent.conf"


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({"config": NETDEV, "devices": {"10.0.0.2": "br-phy"}}, None),
        ({"config": NETDEV}, ("transport", "error", "tunnels to Node n2 (10.0.0.2) leave by eth0 and not by br-phy, which has the transport interface eth0: no packet gets to Pods there", CARD)),
        ({"devices": {"10.0.0.2": "eth1"}}, ("transport", "warning", "tunnels to Node n2 (10.0.0.2) leave by eth1 and not by eth0, the transport interface", CARD)),
        ({"devices": {"10.0.0.2": ""}}, ("transport", "error", "tunnels to Node n2 (10.0.0.2) have no route by eth0, the transport interface: no packet gets to Pods there", CARD)),
        ({"pod_peers": (Peer("n2", "10.244.1.1", SILENT),)}, ("tunnels", "error", f"Pods of Node n2 cannot be reached: its gateway 10.244.1.1 does not answer: {SILENT}; if it is a firewall, the repair is for Node n2", "iptables -I INPUT -p udp --dport 6081 -j ACCEPT")),
        ({"devices": {"10.0.0.2": "eth1"}, "config": NETDEV | NO_ENCAP}, ("transport", "warning", "packets for Pods of Node n2 (10.0.0.2) leave by eth1 and not by br-phy, which has the transport interface eth0", CARD)),
        ({"pod_peers": (Peer("n2", "10.244.1.1", SILENT),), "config": NO_ENCAP}, ("tunnels", "error", f"Pods of Node n2 cannot be reached: its gateway 10.244.1.1 does not answer: {SILENT}; trafficEncapMode has no tunnels: the network between the Nodes, and routers in it, have to carry packets with addresses of Pods", f"{EDIT}  # where they cannot, set trafficEncapMode: encap in antrea-agent.conf")),
        ({"pod_peers": (Peer("n2", "10.244.1.1", SILENT),), "config": {"tunnelType": "gre"}}, ("tunnels", "error", f"Pods of Node n2 cannot be reached: its gateway 10.244.1.1 does not answer: {SILENT}; if it is a firewall, the repair is for Node n2", "iptables -I INPUT -p gre -j ACCEPT")),
        ({"peers": (Peer("n2", "fd00::2"),), "pod_peers": (Peer("n2", "10.244.1.1", SILENT),), "mtus": {"eth0": 1520}, "config": {"tunnelType": "vxlan", "tunnelPort": 8472}}, ("tunnels", "error", f"Pods of Node n2 cannot be reached: its gateway 10.244.1.1 does not answer: {SILENT}; if it is a firewall, the repair is for Node n2", "ip6tables -I INPUT -p udp --dport 8472 -j ACCEPT")),
        ({"service_trouble": "10.96.0.1:443: no", "processes": frozenset()}, ("services", "error", "Services are not served to this Node and its hostNetwork Pods, no kube-proxy runs, and antreaProxy.proxyAll is off: 10.96.0.1:443: no", f"{EDIT}  # set antreaProxy.proxyAll and kubeAPIServerOverride")),
        ({"service_trouble": "10.96.0.1:443: no"}, ("services", "error", "Services are not served, though kube-proxy runs: 10.96.0.1:443: no", "kubectl -n kube-system rollout restart ds/kube-proxy")),
    ],
)  # fmt: skip
def test_a_path_that_leads_nowhere_is_found(changes: dict[str, Any], row: tuple[str, ...] | None) -> None:
    found = findings(WELL._replace(**changes))
    assert [one[1:5] for one in found] == ([] if row is None else [(row[1], row[0], *row[2:])])


def test_of_a_node_that_is_not_reached_at_all_tunnels_are_not_blamed() -> None:
    peers = (Peer("n2", "10.0.0.2", SILENT),)
    rows = said(peers=peers, pod_peers=(Peer("n2", "10.244.1.1", SILENT),))
    assert [row[0] for row in rows] == ["gossip-port"]


def test_nodes_beyond_a_card_without_their_route_are_named_in_one_line() -> None:
    peers = tuple(Peer(f"n{number}", f"10.0.0.{number}") for number in range(2, 10))
    (row,) = findings(WELL._replace(peers=peers, devices={peer.address: "eth1" for peer in peers}))
    assert "n6 (10.0.0.6) and 3 more leave by eth1" in row.finding


def test_gateways_of_other_nodes_are_asked_and_the_service_of_the_api_server() -> None:
    nodes = [
        {"metadata": {"name": name}, "spec": {"podCIDRs": cidrs}}
        for name, cidrs in (("n1", ["127.77.1.0/24"]), ("n2", ["127.77.2.0/24", "::/127"]), ("n3", []))
    ]
    with socket.socket() as silent:
        silent.bind(("", 0))
        port = silent.getsockname()[1]
        assert peers(nodes, "n1", port, gateways) == (Peer("n2", "127.77.2.1"), Peer("n2", "::1"))
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
        assert service_trouble(environ) == ""
    assert service_trouble({}) == ""


def test_a_drop_of_a_family_that_no_pod_has_is_none_of_ours() -> None:
    chains = (FORWARD, FORWARD._replace(family="ip6"), FORWARD._replace(family="bridge"))
    for cidrs, tools in (
        (("10.0.0.0/24",), ["iptables"]),
        (("fd00::/64",), ["ip6tables"]),
        ((), ["iptables", "ip6tables"]),
    ):
        assert [row[2].split()[0] for row in said(chains=chains, pod_cidrs=cidrs)] == tools


def test_what_cannot_be_seen_is_said_and_the_rest_is_checked() -> None:
    node = WELL._replace(
        chains=None, skew=3600.0, unseen={"chains": "nft: not permitted", "config": "connection refused"}
    )
    rows = [(row.severity, row.check, row.finding) for row in findings(node)]
    assert rows == [
        ("error", "agent", "the agent does not answer, and checks of this Node assume the default configuration: connection refused"),
        ("error", "kube-proxy", "cannot be checked: nft: not permitted"),
        ("error", "foreign-drops", "cannot be checked: nft: not permitted"),
        ("error", "time-skew", "the clock of this Node is 3600 s ahead of the API server's"),
    ]  # fmt: skip
    assert all(hasattr(node, field) for _, fields in CHECKS.values() for field in fields)


def test_a_node_whose_pods_have_another_mtu_is_named() -> None:
    infos = [
        {"metadata": {"name": name}, "networkInfo": {"podMTU": mtu}}
        for name, mtu in (("n1", 1450), ("n2", 8950), ("n3", 1450))
    ]
    text = "Pods of this Node have an MTU of 8950, those of most Nodes 1450"
    repair = "kubectl -n net edit configmap antrea-config  # set defaultMTU: 1450 in antrea-agent.conf, or give the cards of all Nodes one MTU"
    assert list(pod_mtus([*infos, {"metadata": {"name": "n4"}}], "net")) == [
        Finding("n2", "warning", "mtu", text, repair)
    ]
    assert list(pod_mtus([], "net")) == []


def test_files_processes_devices_and_modules_of_a_node_are_seen(tmp_path: Path) -> None:
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    configs, release = proc / "1/root/etc/cni/net.d", proc / "1/root/lib/modules"
    for folder in (configs, proc / "self", sys / "class/net/eth0", sys / "module/openvswitch"):
        folder.mkdir(parents=True)
    (configs / "99-x.conf").write_text('{"type": "bridge"}')
    (configs / "10-antrea.conflist").write_text('{"plugins": [{"type": "antrea"}, {"type": "portmap"}]}')
    (configs / "20-broken.conf").write_text("[]")
    (configs / "readme.txt").touch()
    (proc / "1/comm").write_text("systemd\n")
    (sys / "class/net/eth0/mtu").write_text("1500\n")
    (sys / "class/net/bonding_masters").write_text("\n")
    host = Host(proc, sys)

    assert host.cni_files() == (
        CniFile("10-antrea.conflist", ("antrea", "portmap")),
        CniFile("20-broken.conf"),
        CniFile("99-x.conf", ("bridge",)),
    )
    assert host.processes() == {"systemd"}
    assert host.mtus() == {"eth0": 1500}
    assert host.missing_modules(["openvswitch", "wireguard"]) == ("wireguard",)
    built_in = release / os.uname().release
    built_in.mkdir(parents=True)
    (built_in / "modules.builtin").write_text("kernel/drivers/net/wireguard/wireguard.ko\n")
    assert host.missing_modules(["openvswitch", "wireguard"]) == ()


def test_a_configuration_says_which_modules_it_needs() -> None:
    configs: tuple[dict[str, str], ...] = ({}, {"tunnelType": "gre"}, {"trafficEncapMode": "noEncap"})
    assert [needed_modules(config)[1:] for config in configs] == [["geneve"], ["ip_gre"], []]
    assert needed_modules({"ovsDatapathType": "netdev"}) == []
    assert needed_modules({"trafficEncryptionMode": "wireGuard"}) == ["openvswitch", "geneve", "wireguard"]


def test_a_refused_port_is_reached_and_one_without_a_way_is_not() -> None:
    def node(name: str, address: str) -> dict[str, Any]:
        return {
            "metadata": {"name": name},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]},
        }

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        nodes = [
            node("n1", "127.0.0.1"),
            node("n2", "127.0.0.1"),
            node("n3", "127.0.0.2"),
            node("n4", "255.255.255.255"),
            node("n5", "255.255.255.255"),
        ]
        nodes[-1]["metadata"]["annotations"] = {"node.antrea.io/transport-addresses": "127.0.0.1, 127.0.0.2"}
        found = peers(nodes, "n1", port)
    assert [(peer.node, peer.address, bool(peer.trouble)) for peer in found] == [
        ("n2", "127.0.0.1", False),
        ("n3", "127.0.0.2", False),
        ("n4", "255.255.255.255", True),
        ("n5", "127.0.0.1", False),
        ("n5", "127.0.0.2", False),
    ]


@pytest.mark.parametrize("ahead", [0, 3600, -120])
async def test_the_clock_is_compared_with_the_servers(ahead: int) -> None:
    async def version(_: web.BaseRequest) -> web.Response:
        # of any status: to ask for the version is allowed to nobody in some clusters
        return web.json_response(
            {}, status=403, headers={"Date": formatdate(time.time() - ahead, usegmt=True)}
        )

    async with answering(version) as url:
        began = time.monotonic()
        found = await asyncio.to_thread(skew, Server(Access(url=url), 60.0))
        # a Date has whole seconds, and when in this time the server looked at its clock is not known
        assert abs(found - ahead) <= 0.51 + (time.monotonic() - began) / 2


def test_a_node_without_agent_and_api_server_is_looked_at_all_the_same(tmp_path: Path) -> None:
    away = Server(Access(url="http://127.0.0.1:9"), 1.0)

    def nowhere(_: object) -> Server:
        raise Failure("no kubeconfig")

    node = gather(away, nowhere, {"NODE_NAME": "n1", "POD_NAMESPACE": "ns", "POD_NAME": "p"})
    assert (node.name, node.pod, node.peers, node.skew) == ("n1", "ns/p", None, None)
    assert (node.unseen["peers"], node.unseen["skew"]) == ("no kubeconfig", "no kubeconfig")
    assert "127.0.0.1:9" in node.unseen["config"]
    rows = {row.check: row.severity for row in findings(node)}
    assert (rows["agent"], rows["gossip-port"], rows["time-skew"]) == ("error", "error", "error")
    assert rows["config"] == "error"


def test_a_field_that_cannot_be_seen_says_why() -> None:
    node = NodeInspector()

    def fails() -> None:
        raise PermissionError(13, "Permission denied", "/x")

    assert node.read("x", fails, 1) == 1
    assert node.unseen == {"x": "PermissionError: [Errno 13] Permission denied: '/x'"}


def test_nodes_can_be_named_from_a_workstation_only() -> None:
    result = CliRunner().invoke(antctl(mode.AGENT), ["doctor", "n1"], prog_name="antctl")
    error = "Error: Nodes can be named in remote mode only; here it is this Node\n"
    assert (result.exit_code, result.stderr) == (1, error)
    assert Finding._fields == ("node", "severity", "check", "finding", "repair", "peer")
