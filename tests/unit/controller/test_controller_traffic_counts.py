"""Entries of statistics come and go with their policies and Egresses, and sum up what Nodes report."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from antrea.apis.annotation import STATS_ACCOUNT, STATS_EPOCH, STATS_SERIAL
from antrea.apis.controlplane import (
    GROUP,
    EgressGroup,
    NetworkPolicy,
    NetworkPolicyPeer,
    NetworkPolicyReference,
    NetworkPolicyRule,
)
from antrea.apis.controlplane_report import NetworkPolicyStats, NodeStatsSummary
from antrea.apis.meta import ObjectMetadata
from antrea.apis.stats import RuleTrafficStats, TrafficStats
from antrea.controller.apiserver import ipc
from antrea.controller.apiserver.leader_proxy import LeaderState
from antrea.controller.apiserver.traffic_statistics import COUNTED, StatsIntake, TrafficCounts
from antrea.errors import Unavailable
from antrea.features.registry.api_resources import RESOURCES
from antrea.outside.apiserver.objects import Objects, Question
from antrea.outside.apiserver.status import ApiError

if TYPE_CHECKING:
    from collections.abc import Collection

STATS = "stats.antrea.io"
KINDS = {
    "K8sNetworkPolicy": "networkpolicystats",
    "AntreaClusterNetworkPolicy": "antreaclusternetworkpolicystats",
    "AntreaNetworkPolicy": "antreanetworkpolicystats",
}


class Nobody:
    async def answer(self, question: Any) -> Any:
        raise AssertionError(question)


class Front:
    """The stores of a front, and what is counted into them."""

    def __init__(self, gates: Collection[str] = ("NetworkPolicyStats", "Egress")) -> None:
        self.aside = StatsIntake(Nobody())
        self.objects = Objects(RESOURCES, self.aside)
        self.policies = self.objects.stores[GROUP, "networkpolicies"]
        self.counts = self.aside.counts = TrafficCounts(self.objects.stores, gates)

    def come(
        self, kind: str, name: str, uid: str, namespace: str = "", rules: Collection[str] = ("a", "b", "c")
    ) -> None:
        source = NetworkPolicyReference(type=kind, namespace=namespace, name=name, uid=uid)
        peer = NetworkPolicyPeer()
        policy = NetworkPolicy(
            metadata=ObjectMetadata(name=uid, uid=uid),
            source_ref=source,
            rules=tuple(
                NetworkPolicyRule(direction="In", from_=peer, to=peer, name=one, enable_logging=False)
                for one in rules
            ),
        )
        self.policies.put(uid, policy)

    def egress(self, name: str, uid: str) -> None:
        group = EgressGroup(metadata=ObjectMetadata(name=name, uid=uid))
        self.objects.stores[GROUP, "egressgroups"].put(name, group)

    def sync(self) -> None:
        """All policies and Egresses are known."""
        self.policies.sync()
        self.objects.stores[GROUP, "egressgroups"].sync()

    def shown(self) -> dict[tuple[str, str, str], tuple[TrafficStats, dict[str, TrafficStats]]]:
        """Totals and those of rules, by kind, key and UID."""
        found = {}
        for plural in COUNTED:
            for row, _ in self.objects.stores[STATS, plural].objects():
                meta = row.metadata
                key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
                rules = {rule.name: rule.traffic_stats for rule in getattr(row, "rule_traffic_stats", ())}
                found[plural, key, meta.uid] = row.traffic_stats, rules
        return found


def counted(packets: int, size: int, sessions: int) -> TrafficStats:
    return TrafficStats(packets=packets, bytes=size, sessions=sessions)


def row(uid: str, total: TrafficStats | None = None, **rules: TrafficStats) -> NetworkPolicyStats:
    return NetworkPolicyStats(
        network_policy=NetworkPolicyReference(uid=uid),
        traffic_stats=total or TrafficStats(),
        rule_traffic_stats=tuple(
            RuleTrafficStats(name=name, traffic_stats=one) for name, one in rules.items()
        ),
    )


def summary(**rows: Any) -> NodeStatsSummary:
    return NodeStatsSummary(
        metadata=ObjectMetadata(name="n1"), **{key: tuple(one) for key, one in rows.items()}
    )


def test_an_entry_is_there_with_zeros_as_long_as_its_policy() -> None:
    front = Front()
    front.come("K8sNetworkPolicy", "p", "u1", "a")
    front.come("AntreaClusterNetworkPolicy", "p", "u2")
    front.come("AntreaNetworkPolicy", "p", "u3", "a")
    front.come("AdminNetworkPolicy", "p", "u4")
    nothing: tuple[TrafficStats, dict[str, TrafficStats]] = (TrafficStats(), {})
    assert front.shown() == {
        ("networkpolicystats", "a/p", "u1"): nothing,
        ("antreaclusternetworkpolicystats", "p", "u2"): nothing,
        ("antreanetworkpolicystats", "a/p", "u3"): nothing,
    }
    for uid in ("u1", "u2", "u3", "u4", "u5"):
        front.policies.drop(uid)
    assert front.shown() == {}


def test_a_policy_that_changes_keeps_its_counts_and_one_made_anew_does_not() -> None:
    front = Front()
    front.come("K8sNetworkPolicy", "p", "u1", "a")
    front.counts.add(summary(network_policies=[row("u1", counted(3, 300, 1))]))
    front.come("K8sNetworkPolicy", "p", "u1", "a")
    assert front.shown() == {("networkpolicystats", "a/p", "u1"): (counted(3, 300, 1), {})}
    # the new one is told before the old one is gone
    front.come("K8sNetworkPolicy", "p", "u2", "a")
    front.counts.add(summary(network_policies=[row("u1", counted(9, 9, 9))]))
    front.policies.drop("u1")
    assert front.shown() == {("networkpolicystats", "a/p", "u2"): (TrafficStats(), {})}


def test_reports_of_nodes_are_summed_up_by_policy_and_by_rule() -> None:
    front = Front()
    front.come("K8sNetworkPolicy", "p", "u1", "a")
    front.come("AntreaClusterNetworkPolicy", "p", "u2")
    first = summary(
        network_policies=[row("u1", counted(3, 300, 1)), row("gone", counted(1, 1, 1))],
        antrea_cluster_network_policies=[row("u2", None, b=counted(2, 20, 1), a=counted(1, 10, 1))],
    )
    second = summary(
        network_policies=[row("u1", counted(4, 400, 2))],
        antrea_cluster_network_policies=[row("u2", None, b=counted(5, 50, 0), c=counted(7, 70, 7))],
        # of another kind than the policy is
        antrea_network_policies=[row("u1", counted(1000, 1000, 1000))],
    )
    front.counts.add(first)
    front.counts.add(second)
    assert front.shown() == {
        ("networkpolicystats", "a/p", "u1"): (counted(7, 700, 3), {}),
        ("antreaclusternetworkpolicystats", "p", "u2"): (
            counted(15, 150, 9),
            {"a": counted(1, 10, 1), "b": counted(7, 70, 1), "c": counted(7, 70, 7)},
        ),
    }


def test_of_an_agent_that_counts_no_rules_the_total_is_taken() -> None:
    front = Front()
    front.come("AntreaClusterNetworkPolicy", "p", "u2")
    front.counts.add(summary(antrea_cluster_network_policies=[row("u2", counted(2, 20, 1))]))
    assert front.shown() == {("antreaclusternetworkpolicystats", "p", "u2"): (counted(2, 20, 1), {})}


def test_a_node_that_invents_rules_fills_nothing_and_one_that_a_policy_had_goes_on() -> None:
    front = Front()
    front.come("AntreaClusterNetworkPolicy", "p", "u2", rules=["a", "b"])
    front.counts.add(summary(antrea_cluster_network_policies=[row("u2", None, a=counted(1, 10, 1))]))
    front.come("AntreaClusterNetworkPolicy", "p", "u2", rules=["b"])
    one = counted(1, 10, 1)
    for number in range(1000):
        invented = {f"invented-{number}-{each}": one for each in range(10)}
        front.counts.add(summary(antrea_cluster_network_policies=[row("u2", None, a=one, b=one, **invented)]))
    assert front.shown() == {
        ("antreaclusternetworkpolicystats", "p", "u2"): (
            counted(2001, 20010, 2001), {"a": counted(1001, 10010, 1001), "b": counted(1000, 10000, 1000)},
        )
    }  # fmt: skip
    front.policies.drop("u2")
    assert (front.shown(), front.counts._rules) == ({}, {})


def test_counts_stay_what_a_client_can_read() -> None:
    front = Front()
    front.come("K8sNetworkPolicy", "p", "u1", "a")
    front.come("AntreaNetworkPolicy", "p", "u2", "a")
    most = 2**63 - 1
    for _ in range(3):
        front.counts.add(
            summary(
                network_policies=[row("u1", counted(most, most, most))],
                antrea_network_policies=[row("u2", None, a=counted(most, 1, 1), b=counted(1, 1, 1))],
            )
        )
    assert front.shown() == {
        ("networkpolicystats", "a/p", "u1"): (counted(most, most, most), {}),
        ("antreanetworkpolicystats", "a/p", "u2"): (
            counted(most, 6, 6), {"a": counted(most, 3, 3), "b": counted(3, 3, 3)},
        ),
    }  # fmt: skip


@pytest.mark.parametrize("wrong", [row("u1", counted(-1, 0, 0)), row("u1", None, a=counted(0, 0, -5))])
def test_a_report_with_a_negative_count_is_refused_whole(wrong: NetworkPolicyStats) -> None:
    front = Front()
    front.come("K8sNetworkPolicy", "p", "u1", "a")
    with pytest.raises(ApiError, match="counts that Node n1 reports are negative"):
        front.counts.add(summary(network_policies=[row("u1", counted(1, 1, 1)), wrong]))
    assert front.shown() == {("networkpolicystats", "a/p", "u1"): (TrafficStats(), {})}


async def test_what_agents_post_is_counted_and_all_else_is_computed() -> None:
    front = Front()
    front.come("K8sNetworkPolicy", "p", "u1", "a")
    front.sync()
    posted = summary(network_policies=[row("u1", counted(3, 300, 1))])
    question = Question(GROUP, "nodestatssummaries", "", "create", "", "n1", {}, posted)
    assert await front.aside.answer(question) == NodeStatsSummary()
    assert front.shown() == {("networkpolicystats", "a/p", "u1"): (counted(3, 300, 1), {})}
    with pytest.raises(AssertionError):
        await front.aside.answer(Question(GROUP, "groupmembers", "", "get", "a", "g"))


def noted(epoch: str, account: str, serial: int, **rows: Any) -> NodeStatsSummary:
    notes = {STATS_EPOCH: epoch, STATS_ACCOUNT: account, STATS_SERIAL: str(serial)}
    found = summary(**rows)
    return msgspec.structs.replace(found, metadata=ObjectMetadata(name="n1", annotations=notes))


def test_a_report_is_added_once_and_only_in_the_epoch_that_it_is_of() -> None:
    front = Front()
    front.come("K8sNetworkPolicy", "p", "u1", "a")
    with pytest.raises(Unavailable, match="not known yet"):
        front.counts.add_report(noted("", "me", 0))
    front.sync()
    rows = {"network_policies": [row("u1", counted(3, 300, 1))]}
    epoch = front.counts.add_report(noted("an older one", "me", 7, **rows)).metadata.annotations[STATS_EPOCH]

    def sum_after(account: str, serial: int) -> int:
        answer = front.counts.add_report(noted(epoch, account, serial, **rows))
        assert answer.metadata.annotations == {STATS_EPOCH: epoch}
        return front.shown()["networkpolicystats", "a/p", "u1"][0].packets

    assert [sum_after("me", 1), sum_after("me", 1), sum_after("me", 2), sum_after("me", 1)] == [3, 3, 6, 6]
    # of a Node whose file was lost
    assert [sum_after("anew", 1), sum_after("anew", 1)] == [9, 9]
    with pytest.raises(ApiError, match="is not a number"):
        front.counts.add_report(
            msgspec.structs.replace(
                noted(epoch, "me", 0),
                metadata=ObjectMetadata(name="n1", annotations={STATS_EPOCH: epoch, STATS_SERIAL: "x"}),
            )
        )


def test_an_egress_has_an_entry_by_its_uid_and_sums_up_what_nodes_report() -> None:
    front = Front()
    front.egress("web", "e1")
    front.come("AntreaClusterNetworkPolicy", "web", "u2")
    front.counts.add(summary(egresses=[row("e1", counted(3, 300, 0)), row("gone", counted(1, 1, 0))]))
    front.counts.add(summary(egresses=[row("e1", counted(4, 400, 0)), row("u2", counted(9, 9, 0))]))
    # its group changes
    front.egress("web", "e1")
    policy = "antreaclusternetworkpolicystats", "web", "u2"
    nothing: tuple[TrafficStats, dict[str, TrafficStats]] = (TrafficStats(), {})
    assert front.shown() == {("egressstats", "web", "e1"): (counted(7, 700, 0), {}), policy: nothing}
    # made anew, and a late report of what was before
    front.egress("web", "e2")
    front.counts.add(summary(egresses=[row("e1", counted(5, 5, 0))]))
    assert front.shown() == {("egressstats", "web", "e2"): nothing, policy: nothing}
    front.objects.stores[GROUP, "egressgroups"].drop("web")
    assert front.shown() == {policy: nothing}
    front.egress("web", "e3")
    assert front.shown() == {("egressstats", "web", "e3"): nothing, policy: nothing}


def test_an_egress_shows_no_connections() -> None:
    front = Front()
    front.egress("web", "e1")
    front.counts.add(summary(egresses=[row("e1", counted(7, 700, 0))]))
    store = front.objects.stores[STATS, "egressstats"]
    ((found, body),) = store.objects()
    cells = {one.name: one.cell(found) for one in store.resource.columns[:-1]}
    assert cells == {"Name": "web", "Packets": 7, "Bytes": 700}
    assert body.endswith(b'"trafficStats":{"packets":7,"bytes":700}}')


def test_without_its_gate_egress_is_not_counted() -> None:
    front = Front(gates={"NetworkPolicyStats"})
    front.egress("web", "e1")
    front.counts.add(summary(egresses=[row("e1", counted(3, 300, 0))]))
    assert front.shown() == {}
    with pytest.raises(ApiError, match="feature Egress disabled"):
        front.objects.stores[STATS, "egressstats"].get("web")


def test_entries_are_listed_once_all_policies_are_known() -> None:
    front = Front()
    stores = [front.objects.stores[STATS, plural] for plural in sorted(COUNTED)]
    assert [store.synced for store in stores] == [False] * 4
    front.policies.sync()
    assert {store.resource.plural for store in stores if not store.synced} == {"egressstats"}
    front.objects.stores[GROUP, "egressgroups"].sync()
    assert [store.synced for store in stores] == [True] * 4


def test_without_the_gate_nothing_is_counted_and_an_object_is_refused() -> None:
    front = Front(gates={"Egress"})
    front.come("K8sNetworkPolicy", "p", "u1", "a")
    front.policies.sync()
    front.counts.add(summary(network_policies=[row("u1", counted(3, 300, 1))]))
    assert front.shown() == {}
    store = front.objects.stores[STATS, "networkpolicystats"]
    assert store.synced
    with pytest.raises(ApiError, match="feature NetworkPolicyStats disabled") as no:
        store.get("a/p")
    assert no.value.status.code == 400


async def test_a_replica_that_begins_to_lead_begins_to_count() -> None:
    """What it was told when it led before says nothing of the time between."""
    front, leading = Front(), LeaderState(elected=True)
    many = [f"u{number}" for number in range(1200)]
    for uid in many:
        front.come("K8sNetworkPolicy", uid, uid, "a")
    following = asyncio.ensure_future(front.counts.follow(leading))
    await asyncio.sleep(0)
    leading.follow(ipc.Leader(is_self=True))
    front.counts.add(
        summary(network_policies=[row("u1", counted(3, 300, 1)), row("u1199", counted(1, 1, 1))])
    )
    leading.follow(ipc.Leader(is_self=False, address="other"))
    await asyncio.sleep(0)
    leading.follow(ipc.Leader(is_self=True))
    for _ in range(9):
        await asyncio.sleep(0)
        front.counts.add(summary(network_policies=[row("u1199", counted(1, 10, 1))]))
    sums = {uid: front.shown()["networkpolicystats", f"a/{uid}", uid][0] for uid in ("u1", "u1199")}
    following.cancel()
    assert sums == {"u1": TrafficStats(), "u1199": counted(9, 90, 9)}
