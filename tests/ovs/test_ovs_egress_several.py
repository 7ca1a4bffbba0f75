"""Where a real switch sends Pods of an Egress of several addresses: here, to other Nodes, and one of each family."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from test_ovs_egress import GATEWAY, NODE, OUT, PEER, TUNNEL, Way, from_pod, pod, traced
from wide_pool import wide_pool

from antrea.agent.feature_set import active, pipeline_of
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, EgressOwner, EgressPod
from antrea.facts.node import LocalAddress
from antrea.features.egress.agent.multi_address import first_for
from antrea.features.egress.agent.owner import FEATURE as PLACEMENT
from antrea.features.egress.agent.owner import NO_ROOM
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.host.carrier import ip_mac

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

IPS = {"203.0.113.1": "n1", "203.0.113.2": "n2", "203.0.113.3": "n1", "fd00:9::1": "n2", "fd00:9::2": "n1"}
ROWS = [
    Egress("e", "u", ip, "p", node=node, held=ip, slot=slot, of=len(IPS))
    for slot, (ip, node) in enumerate(IPS.items())
]
PODS = [pod(f"web-{number}", 20 + number) for number in range(8)]


def ip_of(pod: str, version: int, live: tuple[str, ...]) -> str:
    return first_for(pod, [row for row in ROWS if row.ip in live and (":" in row.ip) == (version == 6)]).ip


class Several:
    """A bridge with all flows of Node n1, as owners of addresses change."""

    def __init__(self, ovs: OvsBridge) -> None:
        self.ovs, self.facts = ovs, Facts()
        config, features = AgentConfig(ovs_datapath_type="system"), active({"Egress"})
        features = tuple(one for one in features if one is not PLACEMENT)
        self.pipeline = pipeline_of(features, config, NODE)
        here = [LocalAddress(ip, "antrea-egress0") for ip, node in IPS.items() if node == "n1"]
        for row in (
            config,
            NODE,
            PEER,
            GATEWAY,
            TUNNEL,
            RealizedPipeline(self.pipeline),
            wide_pool("p"),
            *here,
            *ROWS,
            *PODS,
        ):
            self.facts.put(row)
        for one in PODS:
            self.facts.put(EgressPod("e", one.pod))
        self.engine = Engine(self.facts, [unit for feature in features for unit in feature.units])

    def leave(self, *live: str) -> dict[tuple[str, int], Way]:
        """How each Pod leaves in each family, while these addresses live."""
        for row in ROWS:
            owner = (row.node, "") if row.ip in live else ("", NO_ROOM)
            self.facts.put(EgressOwner(row.key, *owner))
        self.engine.plan()
        self.ovs.clear()
        self.ovs.install(self.engine.standing().values(), self.pipeline)
        return {(one.name, v): traced(self.ovs, from_pod(one, OUT[v])) for one in PODS for v in (4, 6)}

    def wanted(self, *live: str) -> dict[tuple[str, int], Way]:
        return {(one.name, v): self._way(one.mac, ip_of(one.pod, v, live)) for one in PODS for v in (4, 6)}

    def _way(self, mac: str, ip: str) -> Way:
        if IPS[ip] == "n1":
            return Way("2", self.facts.ids.number("egress-mark", ip), mac, "")
        return Way("1", 0, GATEWAY.mac if ":" not in ip else ip_mac(ip), ip)


@pytest.fixture(scope="module")
def several(ovs: OvsBridge) -> Several:
    for name, number in (("antrea-tun0", 1), ("antrea-gw0", 2), *((one.name, one.ofport) for one in PODS)):
        ovs.add_port(name, number)
    return Several(ovs)


def test_each_pod_leaves_by_one_address_of_each_family_and_a_loss_turns_its_own_pods_alone(
    several: Several,
) -> None:
    before = several.leave(*IPS)
    assert before == several.wanted(*IPS)
    for lost in IPS:
        rest = tuple(ip for ip in IPS if ip != lost)
        after = several.leave(*rest)
        assert after == several.wanted(*rest)
        turned = {key for key in before if before[key] != after[key]}
        assert turned == {(one.name, v) for one in PODS for v in (4, 6) if ip_of(one.pod, v, (*IPS,)) == lost}
    assert several.leave(*IPS) == before
