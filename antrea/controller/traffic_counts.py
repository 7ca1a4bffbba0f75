"""What policies matched and Egresses sent, summed over Nodes: adds up what agents report, and keeps the stores of stats.antrea.io.

An entry comes with its policy or Egress, with zeros, and goes with it. Its creationTimestamp is when this replica began to
count: when it heard of the policy, or began to lead if that was later, since only the leader is told.
parity: pkg/controller/stats/aggregator.go
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis import controlplane as cp
from antrea.apis import stats
from antrea.apis.controlplane_report import NodeStatsSummary
from antrea.apis.meta import ObjectMetadata
from antrea.apis.stats import RuleTrafficStats, TrafficStats
from antrea.features.counted import CLUSTER, KUBERNETES, NAMESPACED
from antrea.outside.aggregated.status import Answered
from antrea.outside.aggregated.store import Store
from antrea.outside.clock import stamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, MutableMapping

    from antrea.apis.controlplane_report import NetworkPolicyStats
    from antrea.apis.resource import Resource
    from antrea.controller.forward import Leading
    from antrea.outside.aggregated.objects import Computes, Question

GATE, EGRESS_GATE = "NetworkPolicyStats", "Egress"
PLURALS = {
    KUBERNETES: "networkpolicystats",
    CLUSTER: "antreaclusternetworkpolicystats",
    NAMESPACED: "antreanetworkpolicystats",
}
"""By the kind of the policy."""
EGRESSES = "egressstats"
COUNTED = frozenset(PLURALS.values()) | {EGRESSES}
SLICE = 500
"""Entries that are begun anew before others have their turn."""


class TrafficCounts:
    """Fills the stores of statistics beside those of policies and of groups of Egresses."""

    def __init__(self, stores: MutableMapping[tuple[str, str], Store], gates: Collection[str]) -> None:
        """`gates` that are on; without theirs, lists are empty and objects refused."""
        self._stores = {plural: stores[stats.GROUP, plural] for plural in COUNTED}
        self._places: dict[str, tuple[Store, str]] = {}
        """By UID of the policy or Egress: where its entry is."""
        self._egresses: dict[str, str] = {}
        """UIDs by name."""
        self._stale: set[str] = set()
        """UIDs of entries that are to begin anew: they may say what was before another replica led."""
        for watched, gate, plurals, heard in (
            ("networkpolicies", GATE, PLURALS.values(), self._heard),
            ("egressgroups", EGRESS_GATE, (EGRESSES,), self._heard_egress),
        ):
            source = stores[cp.GROUP, watched]
            for plural in plurals:
                if gate not in gates:
                    off = Off(self._stores[plural].resource, gate)
                    stores[stats.GROUP, plural] = self._stores[plural] = off
                source.when_synced(self._stores[plural].sync)
            if gate in gates:
                source.listeners.append(heard)

    def _heard(self, uid: str, policy: cp.NetworkPolicy | None) -> None:
        """A policy is there as this says, or is gone."""
        if policy is None:
            self._end(uid)
            return
        source = policy.source_ref
        if source is None or uid in self._places or source.type not in PLURALS:
            return
        meta = ObjectMetadata(name=source.name, namespace=source.namespace, uid=source.uid)
        self._begin(uid, PLURALS[source.type], meta)

    def _heard_egress(self, name: str, group: cp.EgressGroup | None) -> None:
        """An Egress has this group, or is gone; another may have its name."""
        uid = group.metadata.uid if group else ""
        before = self._egresses.pop(name, uid)
        if before != uid:
            self._end(before)
        if uid:
            self._egresses[name] = uid
            if uid not in self._places:
                self._begin(uid, EGRESSES, ObjectMetadata(name=name, uid=uid))

    def _begin(self, uid: str, plural: str, meta: ObjectMetadata) -> None:
        key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
        store = self._stores[plural]
        self._places[uid] = store, key
        meta = msgspec.structs.replace(meta, creation_timestamp=stamp())
        store.put(key, store.resource.struct(metadata=meta, traffic_stats=TrafficStats()))

    def _end(self, uid: str) -> None:
        self._stale.discard(uid)
        if (place := self._places.pop(uid, None)) is not None:
            store, key = place
            # one of the same name may have come before this one was told to be gone
            if (found := store.get(key)) and found[0].metadata.uid == uid:
                store.drop(key)

    def add(self, summary: NodeStatsSummary) -> None:
        """What one Node counted since its last report; what is gone meanwhile is passed over.

        Raises Answered if something is negative; then nothing is added.
        """
        reported = {
            PLURALS[KUBERNETES]: summary.network_policies,
            PLURALS[CLUSTER]: summary.antrea_cluster_network_policies,
            PLURALS[NAMESPACED]: summary.antrea_network_policies,
            EGRESSES: summary.egresses,
        }
        if any(_negative(row) for rows in reported.values() for row in rows):
            raise Answered(400, f"counts that Node {summary.metadata.name} reports are negative")
        for plural, rows in reported.items():
            for row in rows:
                uid = row.network_policy.uid
                store, key = self._places.get(uid, (None, ""))
                if store is self._stores[plural]:
                    self._begin_anew(uid)
                    found = store.get(key)
                    if found and found[0].metadata.uid == uid:
                        store.put(key, _sum(found[0], row))

    async def follow(self, leading: Leading) -> None:
        """For ever: begin anew each time this replica begins to lead, for others were told before."""
        while True:
            was = leading.own
            await leading.changed()
            if leading.own and not was:
                self._stale = set(self._places)
                await self._all_anew()

    async def _all_anew(self) -> None:
        for number, uid in enumerate(tuple(self._stale)):
            self._begin_anew(uid)
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)

    def _begin_anew(self, uid: str) -> None:
        if uid in self._stale:
            self._stale.remove(uid)
            store, key = self._places[uid]
            if found := store.get(key):
                meta = msgspec.structs.replace(found[0].metadata, creation_timestamp=stamp())
                store.put(key, store.resource.struct(metadata=meta, traffic_stats=TrafficStats()))


class Off(Store):
    """Of statistics while their gate is off: there is nothing, and who asks for one object is told why."""

    def __init__(self, resource: Resource, gate: str) -> None:
        super().__init__(resource)
        self._gate = gate

    def get(self, key: str) -> tuple[Any, bytes] | None:
        """Raises Answered, always."""
        raise Answered(400, f"feature {self._gate} disabled")


class CountsAside:
    """Takes in what agents report; all other questions are for the program that computes."""

    def __init__(self, computing: Computes) -> None:
        self.counts: TrafficCounts | None = None
        self._computing = computing

    async def answer(self, question: Question) -> msgspec.Struct:
        """Raises Answered, Unavailable."""
        if question.resource != "nodestatssummaries":
            return await self._computing.answer(question)
        if self.counts:
            self.counts.add(question.found)
        return NodeStatsSummary()


def _counts(row: NetworkPolicyStats) -> Iterator[TrafficStats]:
    yield row.traffic_stats
    yield from (rule.traffic_stats for rule in row.rule_traffic_stats)


def _negative(row: NetworkPolicyStats) -> bool:
    return any(min(one.packets, one.bytes, one.sessions) < 0 for one in _counts(row))


def _sum(before: Any, row: NetworkPolicyStats) -> Any:
    """The entry with what was counted since; of an Antrea policy, a total alone counts if there is one, as upstream has it."""
    if not row.rule_traffic_stats or row.traffic_stats.bytes or not hasattr(before, "rule_traffic_stats"):
        return msgspec.structs.replace(before, traffic_stats=before.traffic_stats + row.traffic_stats)
    rules = {rule.name: rule.traffic_stats for rule in before.rule_traffic_stats}
    total = before.traffic_stats
    for rule in row.rule_traffic_stats:
        rules[rule.name] = rules.get(rule.name, TrafficStats()) + rule.traffic_stats
        total += rule.traffic_stats
    return msgspec.structs.replace(before, traffic_stats=total, rule_traffic_stats=_by_name(rules.items()))


def _by_name(rules: Iterable[tuple[str, TrafficStats]]) -> tuple[RuleTrafficStats, ...]:
    return tuple(RuleTrafficStats(name=name, traffic_stats=found) for name, found in sorted(rules))
