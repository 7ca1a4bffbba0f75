"""What a Node has counted is what the controller shows: whatever is lost, ends or comes twice in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from antrea.agent.switch.traffic_account import Account, TrafficAccountStore
from antrea.apis.annotation import STATS_ACCOUNT, STATS_EPOCH, STATS_SERIAL
from antrea.apis.controlplane import GROUP, EgressGroup, NetworkPolicyReference
from antrea.apis.meta import ObjectMetadata
from antrea.apis.stats import GROUP as STATS
from antrea.apis.stats import TrafficStats
from antrea.controller.apiserver.traffic_statistics import TrafficCounts
from antrea.features.framework.traffic import EGRESS, Share, summary
from antrea.features.registry.api_resources import RESOURCES
from antrea.outside.apiserver.store import Store

if TYPE_CHECKING:
    from antrea.apis.controlplane_report import NodeStatsSummary

NAMES = ("a", "b", "c")
MAX_SHARES = 2
"""Shares in one report."""


class Controller:
    """One process of it: the stores, and what is counted into them."""

    def __init__(self) -> None:
        self.stores = {(row.group, row.plural): Store(row) for row in RESOURCES}
        self.counts = TrafficCounts(self.stores, ("Egress",))
        groups = self.stores[GROUP, "egressgroups"]
        for name in NAMES:
            groups.put(name, EgressGroup(metadata=ObjectMetadata(name=name, uid=name)))
        groups.sync()

    @property
    def shown(self) -> dict[str, int]:
        rows = self.stores[STATS, "egressstats"].objects()
        return {row.metadata.name: row.traffic_stats.packets for row, _ in rows}


class Node:
    """An agent, its file, and a way to the controller that loses questions and answers."""

    def __init__(self) -> None:
        self.controller = Controller()
        self.begin(Account())

    def begin(self, kept: Account) -> None:
        """As an agent that starts reads its file, which it has written before it sent anything."""
        data = msgspec.msgpack.encode(kept)
        self.account = TrafficAccountStore(msgspec.msgpack.decode(data, type=Account))

    def count(self, name: str) -> None:
        by = TrafficStats(packets=1, bytes=100)
        self.account.add(Share(NetworkPolicyReference(type=EGRESS, name=name, uid=name), ""), by)

    def report(self, lost: str) -> bool:
        """Whether there is more to tell."""
        rows = self.account.begin(MAX_SHARES)
        notes = {
            STATS_EPOCH: self.account.epoch,
            STATS_ACCOUNT: self.account.name,
            STATS_SERIAL: str(self.account.serial),
        }
        if lost == "question":
            return True
        meta = ObjectMetadata(name="n1", annotations=notes)
        told: NodeStatsSummary = msgspec.structs.replace(summary("n1", rows), metadata=meta)
        answer = self.controller.counts.add_report(told)
        if lost == "answer":
            return True
        self.account.answered(answer.metadata.annotations[STATS_EPOCH])
        return bool(self.account.owed)


@given(
    st.lists(
        st.one_of(
            st.sampled_from(NAMES),
            st.sampled_from(["arrives", "question", "answer", "agent ends", "controller ends"]),
        )
    )
)
def test_the_sum_is_told_whatever_ends_or_is_lost_in_between(happens: list[str]) -> None:
    node, true = Node(), dict.fromkeys(NAMES, 0)
    for what in happens:
        if what in NAMES:
            node.count(what)
            true[what] += 1
        elif what == "agent ends":
            node.begin(node.account.kept)
        elif what == "controller ends":
            node.controller = Controller()
        else:
            node.report(what)
        shown = node.controller.shown
        assert all(shown[name] <= true[name] for name in NAMES)
    node.report("arrives")
    while node.report("arrives"):
        pass
    node.report("arrives")
    assert node.controller.shown == true


def test_what_is_twice_not_there_is_forgotten() -> None:
    node = Node()
    node.count("a")
    (share,) = node.account.totals
    node.account.note_absent({share})
    node.account.note_absent(set())
    node.account.note_absent({share})
    assert set(node.account.totals) == {share}
    node.account.note_absent({share})
    assert node.account.totals == node.account.owed == {}
