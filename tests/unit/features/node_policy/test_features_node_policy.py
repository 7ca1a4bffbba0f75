"""Policies on Nodes: what the agent makes of their rules in nftables, and what it reports of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from counted_world import Switch, World, counted
from policy_world import (
    ANY,
    CONFIG,
    NODE,
    PIPELINE,
    addresses,
    applied,
    block,
    interface,
    member,
    named,
    native,
    peer,
    port,
    rule,
)

from antrea.apis import controlplane as cp
from antrea.apis.annotation import AUDIT, AUDITED_RULES, ENFORCEMENT
from antrea.apis.policy_report import ON_NODE, PolicyReport
from antrea.engine import Engine, Facts
from antrea.facts.api_server import ApiServerEndpoint
from antrea.facts.member import AgentNode
from antrea.facts.service import Service
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.grouping.member import packed
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.network_policy.agent.fqdn import FqdnAddress
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.confirmation import TakenBack
from antrea.features.node_policy.agent import COUNTED, FEATURE
from antrea.features.node_policy.chain import LOG_BYTES, LOG_GROUP
from antrea.features.node_policy.fqdn import QUEUE, AnswerQueue, NodeFqdnAddress
from antrea.features.node_policy.match import name_set
from antrea.features.node_policy.unrealized import NOT_YET, UNREAD
from antrea.host.nft import NftChain, NftCounter, NftElement, NftRule, NftSet

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.facts.fact import Fact

GATES = EnabledGates("agent", frozenset({"AntreaPolicy", "NodeNetworkPolicy"}))
THIS, OTHER = (cp.GroupMember(node=cp.NodeReference(name=name)) for name in ("n1", "n2"))
NODES = applied("nodes", THIS)
SERVER = ApiServerEndpoint("192.0.2.100", 6443)
FIXED = {"node-ingress", "node-egress", "node-ingress-rules", "node-egress-rules"}
FIXED |= {"node-ingress-baseline", "node-egress-baseline", "node-ingress-guard", "node-egress-guard"}


def engine_of(*rows: Fact, gates: EnabledGates = GATES) -> tuple[Facts, Engine]:
    facts = Facts()
    for pool, low, high in POLICY.ranks:
        facts.ids.between(pool, low, high)
    for row in (CONFIG, RealizedPipeline(PIPELINE), NODE, gates, SERVER, *rows):
        facts.put(row)
    units = (*POLICY.units, *(FEATURE.units if "NodeNetworkPolicy" in gates else ()))
    engine = Engine(facts, units)
    engine.plan()
    return facts, engine


def entries(*rows: Fact) -> list[Any]:
    return list(engine_of(*rows)[1].standing().values())


def lines(*rows: Fact) -> dict[str, list[str]]:
    """Rules by chain, in their order; not those of a Node without policies."""
    idle = set(entries())
    found: dict[str, list[NftRule]] = {}
    for one in entries(*rows):
        if isinstance(one, NftRule) and one not in idle:
            found.setdefault(one.chain, []).append(one)
    return {
        chain: [one.text for one in sorted(own, key=lambda one: (one.order, one.name))]
        for chain, own in found.items()
    }


def only(*rules: cp.NetworkPolicyRule, **order: Any) -> SentPolicy:
    return native("p", "nodes", *rules, **order)


def matches(found: cp.NetworkPolicyRule, *rows: Fact) -> list[str]:
    """Of one rule, without its counter."""
    chain = f"node-{'egress' if found.direction == 'Out' else 'ingress'}-250-5"
    return [
        text.replace('counter name "np-p-0" ', "")
        for text in lines(*NODES, only(found), *rows).get(chain, ())
    ]


def test_a_rule_takes_a_line_in_the_chain_of_its_tier_and_priority_and_nothing_of_the_switch() -> None:
    blocks = peer(blocks=(block("10.100.5.0/24"), block("172.18.6.0/24"), block("2001:db8::/32")))
    rows = (
        *NODES,
        only(
            rule("In", blocks, port(80), action="Allow"), rule("In", ANY, port(80), action="Drop", priority=1)
        ),
    )
    found = set(entries(*rows)) - set(entries())
    name, category = " p {} p", 2
    count = 'counter name "np-p-{}"'
    assert found == {
        NftChain(name="node-ingress-250-5", category=category),
        NftRule(
            chain="node-ingress-rules", name="Tier 250 priority 00005.00000000000000", text="jump node-ingress-250-5",
            order=250, category=category,
        ),
        NftCounter(name="np-p-0", category=category),
        NftCounter(name="np-p-1", category=category),
        NftSet(name="np-p-0-net4", type="ipv4_addr", flags=("interval",), category=category),
        NftElement(set="np-p-0-net4", value="10.100.5.0/24", category=category),
        NftElement(set="np-p-0-net4", value="172.18.6.0/24", category=category),
        NftRule(
            chain="node-ingress-250-5", name=name.format("00000.00000"), order=0, category=category,
            text=f"ip saddr @np-p-0-net4 tcp dport 80 {count.format(0)} accept",
        ),
        NftRule(
            chain="node-ingress-250-5", name=name.format("00000.00001"), order=0, category=category,
            text=f"ip6 saddr 2001:db8::/32 tcp dport 80 {count.format(0)} accept",
        ),
        NftRule(
            chain="node-ingress-250-5", name=name.format("00001.00000"), order=1, category=category,
            text=f"tcp dport 80 {count.format(1)} drop",
        ),
        PolicyReport("p", "n1", 0, kept=ON_NODE),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("services", "texts"),
    [
        ((), ["drop"]),
        (
            (port(80), port(443), port(8000, 8100), port(8050, 8200)),
            ["tcp dport { 80, 443, 8000-8200 } drop"],
        ),
        (
            (port(53, protocol="UDP"), port(38412, protocol="SCTP")),
            ["udp dport 53 drop", "sctp dport 38412 drop"],
        ),
        ((cp.Service(protocol="TCP"),), ["meta l4proto tcp drop"]),
        (
            (cp.Service(protocol="TCP", port=22, src_port=1024, src_end_port=2048),),
            ["tcp dport 22 tcp sport 1024-2048 drop"],
        ),
        (
            (cp.Service(protocol="ICMP", icmp_type=8, icmp_code=0),),
            ["icmp type 8 icmp code 0 drop", "icmpv6 type 8 icmpv6 code 0 drop"],
        ),
        ((cp.Service(protocol="ICMP"),), ["meta l4proto icmp drop", "meta l4proto ipv6-icmp drop"]),
    ],
)
def test_ports_are_matches(services: tuple[cp.Service, ...], texts: list[str]) -> None:
    assert matches(rule("In", ANY, *services, action="Drop")) == texts


@pytest.mark.parametrize(
    ("other", "texts"),
    [
        (peer(), []),
        (peer(blocks=(block("10.0.0.0/8"),)), ["ip daddr 10.0.0.0/8 drop"]),
        (
            peer(blocks=(block("192.0.2.7/32"), block("::/0"))),
            ["ip daddr 192.0.2.7 drop", "meta nfproto ipv6 drop"],
        ),
        (peer(blocks=(block("10.0.0.0/8"), block("10.1.0.0/16"))), ["ip daddr 10.0.0.0/8 drop"]),
        (peer(blocks=(block("10.0.0.0/30", "10.0.0.2/32"),)), ["ip daddr @np-p-0-net4 drop"]),
        (peer("web"), ["ip daddr @np-web-4 drop", "ip6 daddr @np-web-6 drop"]),
    ],
)
def test_peers_are_matches(other: cp.NetworkPolicyPeer, texts: list[str]) -> None:
    assert matches(rule("Out", other, action="Drop")) == texts


@pytest.mark.parametrize(
    ("action", "services", "texts"),
    [
        ("Reject", (port(80),), ["tcp dport 80 reject with tcp reset"]),
        ("Reject", (port(80, protocol="UDP"),), ["udp dport 80 reject with icmpx admin-prohibited"]),
        (
            "Reject",
            (),
            [
                "meta l4proto tcp reject with tcp reset",
                "meta l4proto != tcp reject with icmpx admin-prohibited",
            ],
        ),
        ("Pass", (port(80),), ["tcp dport 80 goto node-ingress-baseline"]),
        ("Allow", (port(80),), ["tcp dport 80 accept"]),
    ],
)
def test_actions_are_verdicts(action: str, services: tuple[cp.Service, ...], texts: list[str]) -> None:
    assert matches(rule("In", ANY, *services, action=action)) == texts


def test_tiers_and_priorities_are_asked_in_their_order_and_the_baseline_last() -> None:
    deny = rule("In", ANY, port(80), action="Drop")
    policies = (
        native("late", "nodes", deny, tier=250, priority=10000.0),
        native("close", "nodes", deny, tier=250, priority=5.0000001),
        native("early", "nodes", deny, tier=250, priority=5.0),
        native("emergency", "nodes", deny, tier=50, priority=5.0),
        native("base", "nodes", deny, tier=253, priority=1.0),
    )
    found = lines(*NODES, *policies)
    assert found["node-ingress-rules"] == [
        "jump node-ingress-50-5",
        "jump node-ingress-250-5",
        "jump node-ingress-250-5.0000001",
        "jump node-ingress-250-10000",
    ]
    assert found["node-ingress-baseline"] == ["jump node-ingress-253-1"]


def test_groups_of_peers_are_sets_that_rules_share_and_others_have_none() -> None:
    to_web = rule("Out", peer("web"), port(22), action="Drop")
    members = (member("a", "10.10.0.7", "fd00:10::7"), member("b", "10.10.0.8"))
    found = entries(
        *NODES, only(to_web, to_web), *addresses("web", *members), *addresses("db", member("c", "10.1.1.1"))
    )
    assert {one for one in found if isinstance(one, NftSet | NftElement)} - set(entries()) == {
        NftSet(name="np-web-4", type="ipv4_addr", category=2),
        NftSet(name="np-web-6", type="ipv6_addr", category=2),
        NftElement(set="np-web-4", value="10.10.0.7", category=2),
        NftElement(set="np-web-4", value="10.10.0.8", category=2),
        NftElement(set="np-web-6", value="fd00:10::7", category=2),
    }


def audited(policy: SentPolicy, annotation: str = ENFORCEMENT, value: str = AUDIT) -> SentPolicy:
    metadata = msgspec.structs.replace(policy.policy.metadata, annotations={annotation: value})
    return SentPolicy(msgspec.structs.replace(policy.policy, metadata=metadata))


def test_an_audited_rule_drops_nothing_and_counts_and_logs_what_it_would_drop_behind_the_enforced_ones() -> (
    None
):
    allow = native("q", "nodes", rule("In", peer(blocks=(block("10.1.0.0/16"),)), action="Allow"), tier=50)
    drop = rule("In", ANY, port(80), action="Reject", name="r")
    found = lines(*NODES, allow, audited(only(drop)))
    log = f'limit rate 5000/second log prefix "np-p-0" group {LOG_GROUP} snaplen {LOG_BYTES}'
    assert {chain: texts for chain, texts in found.items() if "audit-" in chain} == {
        "node-ingress-audit-rules": ["jump node-ingress-audit-50-5", "jump node-ingress-audit-250-5"],
        "node-ingress-audit-baseline": ["accept"],
        "node-ingress-audit-50-5": ["ip saddr 10.1.0.0/16 accept"],
        "node-ingress-audit-250-5": [
            f"tcp dport 80 {log}",
            'tcp dport 80 counter name "np-p-0" accept',
        ],
    }
    assert found["node-ingress-rules"] == ["jump node-ingress-50-5"]
    assert found["node-ingress-50-5"] == ['ip saddr 10.1.0.0/16 counter name "np-q-0" accept']


def test_one_rule_of_a_policy_is_audited_by_its_name_and_the_other_is_enforced_and_asked_before_it() -> None:
    passes = rule("Out", ANY, port(80), action="Pass", name="first")
    drop = rule("Out", ANY, port(80), action="Drop", name="second", priority=1)
    found = lines(*NODES, audited(only(passes, drop), AUDITED_RULES, "second"))
    assert found["node-egress-250-5"] == ['tcp dport 80 counter name "np-p-0" goto node-egress-baseline']
    assert found["node-egress-audit-250-5"][0] == "tcp dport 80 goto node-egress-audit-baseline"
    assert found["node-egress-audit-250-5"][-1] == 'tcp dport 80 counter name "np-p-1" accept'
    assert not [chain for chain in found if chain.startswith("node-ingress-audit")]


def test_a_policy_for_pods_and_another_node_is_none_of_this_node() -> None:
    deny = rule("In", ANY, port(80), action="Drop")
    rows = (*applied("nodes", OTHER), *applied("pods", member("web")), interface("web", 7))
    assert lines(*rows, only(deny), native("q", "pods", deny)) == {}


def test_a_policy_for_this_node_has_no_flows() -> None:
    deny = rule("In", ANY, port(80), action="Drop")
    assert named(entries(*NODES, only(deny))) == named(entries())


def test_a_node_without_the_gate_reports_that_it_does_not_enforce_the_policy() -> None:
    off = EnabledGates("agent", frozenset({"AntreaPolicy"}))
    _, engine = engine_of(*NODES, only(rule("In", ANY, port(80), action="Drop", name="r")), gates=off)
    reports = [one for one in engine.standing().values() if isinstance(one, PolicyReport)]
    why = "the feature gate NodeNetworkPolicy is off in antrea-agent.conf of this Node"
    assert reports == [PolicyReport("p", "n1", 0, why)]


TOLD = AnswerQueue()
NAMES = cp.NetworkPolicyPeer(fqdns=("*.Example.com.", "a.test"))
ALLOWED = rule("Out", NAMES, port(443), action="Allow", name="r")


def failures(*rows: Fact) -> str:
    (report,) = [one for one in entries(*rows) if isinstance(one, PolicyReport)]
    return report.failure


def of_names(kind: type[NftSet | NftElement], *rows: Fact) -> list[Any]:
    """Sets, or elements, of names."""
    found = [one for one in entries(*rows) if isinstance(one, kind)]
    return [one for one in found if (one.name if isinstance(one, NftSet) else one.set).startswith("np-fqdn-")]


def test_names_are_sets_that_rules_share_and_what_dns_gives_is_in_them() -> None:
    two = only(ALLOWED, rule("Out", NAMES, action="Drop", priority=1))
    rows = (*NODES, two, TOLD, NodeFqdnAddress("*.example.com", "198.51.100.7"))
    texts = lines(*rows)
    sets = {one.name for one in of_names(NftSet, *rows)}
    assert sets == {
        name_set(name, ipv6=ipv6) for name in ("*.example.com", "a.test") for ipv6 in (False, True)
    }
    first = name_set("*.example.com", ipv6=False)
    assert texts["node-egress-250-5"][0] == f'ip daddr @{first} tcp dport 443 counter name "np-p-0" accept'
    assert len(texts["node-egress-250-5"]) == 2 * len(sets)
    assert of_names(NftElement, *rows) == [NftElement(set=first, value="198.51.100.7", category=2)]
    # an address of a name that no rule has any more is in no set
    assert of_names(NftElement, *NODES, *rows[-2:]) == []


def test_answers_to_the_node_are_held_while_a_rule_has_names_and_the_agent_takes_them() -> None:
    assert [text.partition(" queue ")[2] for text in lines(*NODES, only(ALLOWED), TOLD)["node-dns"]] == [
        f"flags bypass to {QUEUE}"
    ] * 4
    block = rule("Out", ANY, action="Drop")
    for rows in ((only(block), TOLD), (only(ALLOWED),), (only(ALLOWED), AnswerQueue("no"))):
        assert "node-dns" not in lines(*NODES, *rows)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ((TOLD,), ""),
        ((AnswerQueue("no module"),), f"r: {UNREAD}: no module"),
        ((), f"r: {UNREAD}: {NOT_YET}"),
    ],
)
def test_rules_on_names_without_answers_are_reported(rows: tuple[Fact, ...], why: str) -> None:
    assert failures(*NODES, only(ALLOWED), *rows) == why


def test_names_of_pods_give_nothing_to_the_node() -> None:
    asked = (*NODES, only(ALLOWED), TOLD, FqdnAddress("a.test", "198.51.100.7"))
    assert of_names(NftElement, *asked) == []


def test_a_rule_with_too_many_exceptions_is_reported_and_has_no_line() -> None:
    holes = [f"10.{number >> 8}.{number & 255}.1/32" for number in range(5000)]
    found = rule("In", peer(blocks=(block("10.0.0.0/8", *holes),)), action="Allow", name="r")
    (report,) = [one for one in entries(*NODES, only(found)) if isinstance(one, PolicyReport)]
    assert report.failure.startswith("r: the exceptions (ipBlock.except) of one policy are more than")
    assert lines(*NODES, only(found)) == {}


def test_what_every_node_has() -> None:
    found = [one for one in entries() if isinstance(one, NftChain)]
    assert {one.name: one.hook for one in found} == dict.fromkeys(FIXED, "") | {
        "node-ingress": "type filter hook input priority filter; policy accept;",
        "node-egress": "type filter hook output priority filter; policy accept;",
    }


OTHER_NODE = AgentNode("n2", ("192.0.2.2", "2001:db8:2::2"), ("198.51.100.2",))
OWN_NODE = AgentNode("n1", ("192.0.2.1",), ("192.0.2.1",), ssh_ports=(22, 2222))


def guard(direction: str, *rows: Fact) -> list[str]:
    """What a Node lets through before any policy is asked."""
    found = [one for one in entries(*rows) if isinstance(one, NftRule)]
    base, kept = f"node-{direction}", f"node-{direction}-guard"
    ordered = sorted(
        (one for one in found if one.chain in (base, kept)),
        key=lambda one: (one.order if one.chain == base else 31, one.name),
    )
    return [f"{one.name}: {one.text}" for one in ordered]


def test_a_node_keeps_what_it_cannot_do_without_before_any_policy_is_asked() -> None:
    neighbours = (
        "icmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert } accept"
    )
    assert guard("ingress", OWN_NODE) == [
        "established connections: ct state established,related accept",
        'the Node to itself: iifname "lo" accept',
        f"neighbour discovery: {neighbours}",
        "the guard: jump node-ingress-guard",
        "000 kube-apiserver: ip saddr @node-guard-nodes-4 ip daddr . tcp dport @node-guard-ports-4 accept",
        "001 kube-apiserver: ip6 saddr @node-guard-nodes-6 ip6 daddr . tcp dport @node-guard-ports-6 accept",
        "002 tunnels: ip saddr @node-guard-nodes-4 udp dport 6081 accept",
        "003 tunnels: ip6 saddr @node-guard-nodes-6 udp dport 6081 accept",
        "004 gossip: ip saddr @node-guard-nodes-4 tcp dport 10351 accept",
        "005 gossip: ip6 saddr @node-guard-nodes-6 tcp dport 10351 accept",
        "006 gossip: ip saddr @node-guard-nodes-4 udp dport 10351 accept",
        "007 gossip: ip6 saddr @node-guard-nodes-6 udp dport 10351 accept",
        "008 antrea-controller: ip saddr @node-guard-nodes-4 tcp dport 10349 accept",
        "009 antrea-controller: ip6 saddr @node-guard-nodes-6 tcp dport 10349 accept",
        "010 kubelet and antrea-agent, for kube-apiserver: ip saddr @node-guard-servers-4 tcp dport { 10250, 10350 } accept",
        "011 kubelet and antrea-agent, for kube-apiserver: ip6 saddr @node-guard-servers-6 tcp dport { 10250, 10350 } accept",
        "012 DHCP: udp dport { 68, 546 } accept",
        "013 SSH: tcp dport { 22, 2222 } accept",
        "policies: jump node-ingress-rules",
        "policies of the baseline Tier: jump node-ingress-baseline",
    ]
    assert [line.partition(": ")[0] for line in guard("egress", OWN_NODE)][4:-2] == [
        *("000 kube-apiserver", "001 kube-apiserver", "002 tunnels", "003 tunnels"),
        *(f"{number:03} gossip" for number in (4, 5, 6, 7)),
        *("008 antrea-controller", "009 antrea-controller", "010 DHCP"),
    ]
    gre = guard("egress", OWN_NODE, msgspec.structs.replace(CONFIG, tunnel_type="gre"))
    assert "002 tunnels: ip daddr @node-guard-nodes-4 meta l4proto gre accept" in gre
    no_encap = msgspec.structs.replace(CONFIG, traffic_encap_mode="noEncap")
    assert "tunnels" not in " ".join(guard("egress", OWN_NODE, no_encap))


def test_the_guard_has_the_addresses_of_all_nodes_and_api_servers() -> None:
    service = Service("default", "kubernetes", ("10.96.0.1",), (("TCP", 443),))
    other = Service("default", "web", ("10.96.0.2",), (("TCP", 80),))
    found = entries(OTHER_NODE, service, other)
    assert {(one.set, one.value) for one in found if isinstance(one, NftElement)} == {
        ("node-guard-nodes-4", "192.0.2.2"),
        ("node-guard-nodes-4", "198.51.100.2"),
        ("node-guard-nodes-6", "2001:db8:2::2"),
        ("node-guard-servers-4", "192.0.2.100"),
        ("node-guard-ports-4", "192.0.2.100 . 6443"),
        ("node-guard-ports-4", "10.96.0.1 . 443"),
    }


def test_no_policy_is_asked_before_an_api_server_is_known() -> None:
    facts, engine = engine_of(*NODES, only(rule("In", ANY, port(80), action="Drop", name="r")))
    facts.drop(ApiServerEndpoint, SERVER.key)
    engine.plan()
    found = list(engine.standing().values())
    assert not [one for one in found if isinstance(one, NftRule) and one.name.startswith("policies")]
    (report,) = [one for one in found if isinstance(one, PolicyReport)]
    assert report.failure == (
        "no address of kube-apiserver is known yet, and without the Node could be cut off from it"
    )


ALL_BUT_SSH = "tunnels, gossip, antrea-controller, kubelet and antrea-agent, for kube-apiserver, DHCP"
NODES_GROUP = addresses("all", cp.GroupMember(node=cp.NodeReference(name="n2"), ips=(packed("192.0.2.2"),)))


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (rule("In", ANY, action="Drop", name="r"), f"r would cut {ALL_BUT_SSH}, SSH"),
        (rule("In", ANY, port(80), action="Drop", name="r"), ""),
        (rule("In", ANY, action="Allow", name="r"), ""),
        (rule("In", peer(blocks=(block("203.0.113.0/24"),)), port(10250), action="Drop", name="r"), ""),
        (rule("Out", ANY, port(6000, 7000), action="Reject", name="r"), "r would cut kube-apiserver"),
        (
            rule("Out", peer(blocks=(block("192.0.2.0/24"),)), port(6443), action="Drop", name="r"),
            "r would cut kube-apiserver",
        ),
        (
            rule("Out", peer("all"), port(6081, protocol="UDP"), action="Drop", name="r"),
            "r would cut tunnels",
        ),
        (rule("Out", peer("all"), port(22), action="Drop", name="r"), ""),
    ],
)
def test_a_policy_that_would_cut_a_node_is_reported_to(found: cp.NetworkPolicyRule, kept: str) -> None:
    rows = (*NODES, *NODES_GROUP, OWN_NODE, OTHER_NODE, only(found))
    (report,) = [one for one in entries(*rows) if isinstance(one, PolicyReport)]
    assert (report.failure, report.kept) == ("", kept or ON_NODE)


def test_a_rule_reports_what_its_counter_counted_also_after_the_counter_was_made_anew(tmp_path: Path) -> None:
    deny = rule("In", ANY, port(80), action="Drop", name="r")
    facts, engine = engine_of(*NODES, only(deny), native("q", "nodes", deny))
    world = World(tmp_path / "kept", Switch(facts, engine, PIPELINE, COUNTED, "never"))
    assert world.turn() == {}
    world.switch.counters = {"np-p-0": (3, 180), "np-q-0": (0, 0), "np-gone-0": (9, 9)}
    assert world.turn() == {("p", "r"): counted(3, 180, 3)}
    world.switch.counters = {"np-p-0": (1, 60), "np-q-0": (2, 120)}
    assert world.turn() == {("p", "r"): counted(4, 240, 4), ("q", "r"): counted(2, 120, 2)}


def test_a_policy_that_is_taken_back_has_neither_lines_nor_flows(tmp_path: Path) -> None:
    found = only(rule("In", ANY, port(80), action="Drop", name="r")).policy
    meta = msgspec.structs.replace(
        found.metadata, generation=3, annotations={"antrea.io/confirm-within": "60s"}
    )
    waiting = SentPolicy(msgspec.structs.replace(found, metadata=meta))
    pods = (*applied("nodes", THIS, member("web")), interface("web", 7))
    assert lines(*pods, waiting) != {}
    back = (*pods, waiting, TakenBack("p", 3))
    assert lines(*back) == {}
    assert named(entries(*back)) == named(entries(*pods))
    (report,) = [one for one in entries(*back) if isinstance(one, PolicyReport)]
    assert report.failure.startswith("taken back: generation 3 was not confirmed within 60 s")
