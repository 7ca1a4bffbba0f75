"""Which answers from other Nodes a Node accepts, and where those end that it does not track."""

from __future__ import annotations

from typing import Literal

import pytest

from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, ReleasedAddress
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.ovs import OvsPort
from antrea.features.egress.agent.feature import FEATURE
from antrea.features.pod_connectivity.tunnel import TUNNEL_PORT
from antrea.host.carrier import RELAYED_MACS
from antrea.host.nft import NftElement, NftRule, NftSet
from antrea.openflow.flow import Flow

Datapath = Literal["system", "netdev"]
IPS = {4: "203.0.113.1", 6: "2001:db8::1"}
SETS = {4: "egress-accepted", 6: "egress-accepted6"}


def engine(version: int, datapath: Datapath, pool: str = "p") -> Engine:
    facts = Facts()
    facts.put(AgentConfig(ovs_datapath_type=datapath))
    facts.put(ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"), ("192.0.2.1",), ("192.0.2.1",)))
    for number, name in enumerate(("antrea-gw0", TUNNEL_PORT), 2):
        facts.put(OvsPort(name, "gateway", number, "aa:aa:aa:aa:aa:aa"))
    facts.put(Egress("e", "u", IPS[version], pool=pool))
    facts.put(LocalAddress(IPS[version], "antrea-egress0"))
    found = Engine(facts, FEATURE.units)
    found.plan()
    return found


def accepted(one: Engine) -> tuple[set[tuple[str, str]], int]:
    """Elements of the sets of addresses, and how many flows accept answers."""
    standing = one.standing().values()
    elements = {(x.set, x.value) for x in standing if isinstance(x, NftElement) and x.set in SETS.values()}
    return elements, sum(f"dl_src={RELAYED_MACS[0]}" in str(x) for x in standing if isinstance(x, Flow))


@pytest.mark.parametrize("datapath", ["system", "netdev"])
@pytest.mark.parametrize("version", [4, 6])
def test_answers_are_accepted_only_while_those_that_are_not_tracked_end_here(
    version: int, datapath: Datapath
) -> None:
    one = engine(version, datapath)
    there = ({(SETS[version], IPS[version])}, 1)
    assert accepted(one) == there
    # given up, and late packets are still translated
    one.facts.put(ReleasedAddress("e", IPS[version], "n2"))
    one.facts.drop(LocalAddress, IPS[version])
    one.plan()
    assert accepted(one) == there
    one.facts.drop(ReleasedAddress, "e")
    dropped = [
        x
        for x in one.plan().drop
        if isinstance(x, Flow) or (isinstance(x, NftElement) and x.set in SETS.values())
    ]
    assert [type(x) for x in dropped][-1] is NftElement  # after the flow that needs it
    assert accepted(one) == (set(), 0)
    assert accepted(engine(version, datapath, pool="")) == (set(), 0)


@pytest.mark.parametrize("datapath", ["system", "netdev"])
def test_what_no_node_tracks_is_refused_before_pods_packets_are_accepted(datapath: Datapath) -> None:
    standing = engine(4, datapath).standing().values()
    assert {SETS[4], SETS[6]} <= {one.name for one in standing if isinstance(one, NftSet)}
    for version, ip, icmp in ((4, "ip", "icmp"), (6, "ip6", "icmpv6")):
        rules = [one for one in standing if isinstance(one, NftRule) and f"@{SETS[version]} " in one.text]
        match = (
            f'iifname "antrea-gw0" ether saddr {RELAYED_MACS[0]} {ip} daddr @{SETS[version]}'
            " ct state { invalid, new }"
        )
        assert [one.text for one in sorted(rules, key=lambda one: one.order)] == [
            f"{match} meta l4proto tcp reject with tcp reset",
            f"{match} reject with {icmp} port-unreachable",
        ]
        assert {one.chain for one in rules} == {"forward"}
        assert max(one.order for one in rules) < NftRule(chain="forward", name="", text="").order
