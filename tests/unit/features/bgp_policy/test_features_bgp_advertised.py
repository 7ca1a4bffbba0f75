"""Condition Advertised of Services and Egresses, from what agents report to the controller."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antrea.apis import core
from antrea.apis.controlplane_report import AdvertisedObject, NodeBgpSummary
from antrea.apis.core import Node
from antrea.apis.crd.bgp import BGPPolicy
from antrea.apis.crd.egress import Egress as StoredEgress
from antrea.apis.meta import ObjectMetadata
from antrea.apis.status import Status
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress
from antrea.facts.node import LocalAddress
from antrea.features.bgp_policy.advertised import (
    ConditionedEgress,
    ConditionedService,
    NodeAdvertisement,
    NodeSpeaker,
    ReportsComplete,
    conditioned_egress,
    conditioned_service,
    forget_node,
    record_summary,
)
from antrea.features.bgp_policy.advertisement import AdvertisedPrefix
from antrea.features.bgp_policy.agent_part.metrics import bgp_metrics
from antrea.features.bgp_policy.controller import FEATURES
from antrea.features.bgp_policy.followed import node_labels
from antrea.features.bgp_policy.policy import BgpPolicyRow, EffectivePolicy, policy_row
from antrea.features.bgp_policy.route_type import EGRESS_TYPE, POD_TYPE, SERVICE_TYPES
from antrea.features.bgp_policy.state import BfdPeerState, BgpPeerState, FrrState
from antrea.features.bgp_policy.summary import summary

POLICY = msgspec.convert(
    {
        "metadata": {"name": "p", "uid": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeSelector": {"matchLabels": {"bgp": "on"}}, "localASN": 64512},
    },
    BGPPolicy,
)
WEB = AdvertisedObject(kind="Service", namespace="default", name="web", ip_families=("IPv4",))
SHOP = AdvertisedObject(kind="Egress", name="shop", ip_families=("IPv4", "IPv6"))
WEB_PATH = "/api/v1/namespaces/default/services/web"
SHOP_PATH = "/apis/crd.antrea.io/v1beta1/egresses/shop"


def reported(
    node: str, *objects: AdvertisedObject, peers: tuple[str, ...] = ("192.0.2.9",)
) -> NodeBgpSummary:
    return NodeBgpSummary(metadata=ObjectMetadata(name=node), peers=peers, objects=objects)


class Cluster:
    """The controller's units, with Nodes that follow the policy."""

    def __init__(self, *nodes: str) -> None:
        self.facts = Facts()
        self.engine = Engine(self.facts, tuple(unit for row in FEATURES for unit in row.units))
        self.facts.put(policy_row(POLICY))
        for name in nodes:
            self.add(name)
        self.conditions()

    def add(self, name: str) -> None:
        found = {"metadata": {"name": name, "labels": {"bgp": "on"}}}
        self.facts.put(node_labels(msgspec.convert(found, Node)))

    def conditions(self, *reports: NodeBgpSummary) -> dict[str, tuple[str, str, str]]:
        """Conditions that are written now: status, reason and message by path; an empty status removes it."""
        for report in reports:
            record_summary(self.facts, report)
        written = {}
        for entry in self.engine.plan().put:
            assert isinstance(entry, Status)
            (condition,) = entry.conditions
            if condition.type.endswith("Advertised"):
                assert entry.keyed == ("/services/" in entry.path)
                written[entry.path] = (condition.status, condition.reason, condition.message)
        assert not self.engine.errors.standing
        return written


def service_with(*types: str) -> ConditionedService | None:
    found = {
        "metadata": {"namespace": "default", "name": "web"},
        "status": {"conditions": [{"type": kind, "status": "True"} for kind in types]},
    }
    return conditioned_service(msgspec.convert(found, core.Service))


def test_the_condition_names_nodes_and_their_routers_of_the_same_family() -> None:
    cluster = Cluster("n1", "n2")
    assert cluster.conditions(reported("n1", WEB, SHOP, peers=("2001:db8::9",))) == {
        WEB_PATH: ("False", "NoSession", "not advertised, without a BGP session: n1"),
        SHOP_PATH: ("True", "Advertised", "advertised by BGP: n1 to 2001:db8::9"),
    }
    assert cluster.conditions(reported("n2", WEB, peers=("192.0.2.9", "192.0.2.8"))) == {
        WEB_PATH: ("True", "Advertised", "advertised by BGP: n2 to 192.0.2.8, 192.0.2.9")
    }
    # what does not change is not written
    assert cluster.conditions(reported("n2", WEB, peers=("192.0.2.8", "192.0.2.9"))) == {}


def test_a_message_is_bounded_and_takes_only_what_is_well_formed() -> None:
    names = [f"n{number}" for number in range(8)]
    cluster = Cluster(*names)
    peers = tuple(f"192.0.2.{number}" for number in range(9))
    many = cluster.conditions(*(reported(name, WEB, peers=peers) for name in names))
    (_, _, message) = many[WEB_PATH]
    assert message.startswith(
        "advertised by BGP: n0 to 192.0.2.0, 192.0.2.1, 192.0.2.2, 192.0.2.3 and 5 more; n1 to"
    )
    assert message.endswith("; 3 more Nodes")
    hostile = [
        AdvertisedObject(kind="Service", namespace="../..", name="x", ip_families=("IPv4",)),
        AdvertisedObject(kind="Secret", namespace="default", name="x", ip_families=("IPv4",)),
        AdvertisedObject(kind="Egress", name="a/b", ip_families=("IPv4",)),
    ]
    assert cluster.conditions(reported("n0", *hostile, peers=("not\nan address",)))[WEB_PATH][2].startswith(
        "advertised by BGP: n1 to"
    )
    assert cluster.facts.by(NodeAdvertisement, "node", "n0") == []
    assert cluster.facts.get(NodeSpeaker, "n0") == NodeSpeaker("n0", (), 2)
    # of a Node that no policy selects nothing is taken
    assert cluster.conditions(reported("stranger", WEB)) == {}
    assert cluster.facts.get(NodeSpeaker, "stranger") is None


def test_the_condition_goes_with_the_last_advertisement_and_with_the_policy() -> None:
    cluster = Cluster("n1", "n2")
    cluster.conditions(reported("n1", WEB), reported("n2"))
    row = service_with("service.antrea.io/Advertised")
    assert row is not None
    cluster.facts.put(row)
    assert cluster.conditions() == {}
    assert cluster.conditions(reported("n1")) == {WEB_PATH: ("", "", "")}
    assert cluster.conditions(reported("n1", WEB))[WEB_PATH][0] == "True"
    cluster.facts.drop(BgpPolicyRow, "p")
    assert cluster.conditions() == {WEB_PATH: ("", "", "")}
    assert cluster.conditions(reported("n1")) == {}
    assert cluster.facts.get(NodeSpeaker, "n1") is None


@pytest.mark.parametrize("late", [False, True])
def test_a_controller_that_starts_waits_for_reports_before_it_takes_a_condition_away(late: bool) -> None:
    cluster = Cluster("n1", "n2")
    egress = conditioned_egress(
        msgspec.convert(
            {
                "metadata": {"name": "shop"},
                "spec": {"appliedTo": {}},
                "status": {"conditions": [{"type": "Advertised", "status": "True"}]},
            },
            StoredEgress,
        )
    )
    assert egress == ConditionedEgress("Egress//shop")
    cluster.facts.put(egress)
    assert cluster.conditions(reported("n1")) == {}
    if late:
        cluster.facts.put(ReportsComplete())
        assert cluster.conditions() == {SHOP_PATH: ("", "", "")}
    else:
        assert cluster.conditions(reported("n2")) == {SHOP_PATH: ("", "", "")}


def test_a_silent_node_no_longer_counts() -> None:
    cluster = Cluster("n1", "n2")
    cluster.conditions(reported("n1", WEB), reported("n2", WEB))
    forget_node(cluster.facts, "n1")
    assert cluster.conditions() == {WEB_PATH: ("True", "Advertised", "advertised by BGP: n2 to 192.0.2.9")}
    assert service_with("other") is None


def test_a_node_reports_networks_that_its_speaker_was_told_of() -> None:
    facts = Facts()
    rows: list[Any] = [
        AdvertisedPrefix("203.0.113.5/32", SERVICE_TYPES["LoadBalancerIP"], "default/web"),
        AdvertisedPrefix("2001:db8::5/128", SERVICE_TYPES["ExternalIP"], "default/web"),
        AdvertisedPrefix("203.0.113.6/32", EGRESS_TYPE, "shop"),
        AdvertisedPrefix("203.0.113.7/32", EGRESS_TYPE, "later"),
        AdvertisedPrefix("10.10.0.0/24", POD_TYPE, ""),
        BgpPeerState("192.0.2.9", 65001, "Established", 4),
        BgpPeerState("192.0.2.8", 65001, "Active"),
        Egress("web", "u", "203.0.113.6"),
        LocalAddress("203.0.113.6", "antrea-egress0"),
    ]
    for row in rows:
        facts.put(row)
    told = {"203.0.113.5/32", "2001:db8::5/128", "203.0.113.6/32", "10.10.0.0/24"}
    assert summary(facts, "n1", told) == NodeBgpSummary(
        metadata=ObjectMetadata(name="n1"),
        peers=("192.0.2.9",),
        objects=(
            AdvertisedObject(kind="Egress", name="shop", ip_families=("IPv4",)),
            AdvertisedObject(kind="Service", namespace="default", name="web", ip_families=("IPv4", "IPv6")),
        ),
    )
    assert bgp_metrics(facts) == ""
    facts.put(EffectivePolicy(policy_row(POLICY)))
    facts.put(FrrState())
    facts.put(BfdPeerState("192.0.2.9", up=False))
    lines = [line for line in bgp_metrics(facts).splitlines() if not line.startswith("#")]
    assert lines[:6] == [
        "antrea_agent_bgp_engine_up 1",
        'antrea_agent_bgp_session_up{peer="192.0.2.8"} 0',
        'antrea_agent_bgp_session_up{peer="192.0.2.9"} 1',
        'antrea_agent_bgp_sent_route_count{peer="192.0.2.8"} 0',
        'antrea_agent_bgp_sent_route_count{peer="192.0.2.9"} 4',
        'antrea_agent_bfd_session_up{peer="192.0.2.9"} 0',
    ]
    assert 'antrea_agent_bgp_advertised_route_count{type="EgressIP"} 2' in lines
    # a Node that is drained reports its state by BFD itself
    facts.put(EffectivePolicy(policy_row(POLICY), is_draining=True))
    assert "antrea_agent_bfd_session_up" not in bgp_metrics(facts)
