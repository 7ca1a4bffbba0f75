"""Traffic of policies and Egresses, summed over Nodes: adds up agents' reports and keeps the stores of stats.antrea.io.

An entry comes with its policy or Egress, with zeros, and goes with it. Its creationTimestamp is when this replica began to
count: when it received the policy, or began to lead if that was later, since only the leader gets reports.
What an agent reports is bounded by what exists: policies, Egresses, and the rules that a policy has or had; counts stay within 64 bits.
parity: pkg/controller/stats/aggregator.go
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis import controlplane as cp
from antrea.apis import stats
from antrea.apis.annotation import STATS_ACCOUNT, STATS_EPOCH, STATS_SERIAL
from antrea.apis.controlplane_report import NodeStatsSummary
from antrea.apis.meta import ObjectMetadata
from antrea.apis.stats import RuleTrafficStats, TrafficStats
from antrea.errors import Unavailable
from antrea.features.framework.traffic import CLUSTER, KUBERNETES, NAMESPACED
from antrea.outside.apiserver.status import ApiError
from antrea.outside.apiserver.store import Store
from antrea.outside.kube.clock import stamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, MutableMapping

    from antrea.apis.controlplane_report import NetworkPolicyStats
    from antrea.apis.resource import Resource
    from antrea.controller.apiserver.leader_proxy import LeaderState
    from antrea.outside.apiserver.objects import Computes, Question

GATE, EGRESS_GATE = "NetworkPolicyStats", "Egress"
PLURALS = {
    KUBERNETES: "networkpolicystats",
    CLUSTER: "antreaclusternetworkpolicystats",
    NAMESPACED: "antreanetworkpolicystats",
}
"""Plural of the statistics' resource by the kind of the policy."""
EGRESSES = "egressstats"
COUNTED = frozenset(PLURALS.values()) | {EGRESSES}
_MAX_VALUE = 2**63 - 1
MAX_NODES = 20_000
"""Maximum number of Nodes whose last report is remembered."""
SLICE = 500
"""Entries that are begun anew before others have their turn."""


class TrafficCounts:
    """Fills the stores of statistics beside those of policies and of groups of Egresses."""

    def __init__(self, stores: MutableMapping[tuple[str, str], Store], gates: Collection[str]) -> None:
        """`gates` that are on; without theirs, lists are empty and objects refused."""
        self._stores = {plural: stores[stats.GROUP, plural] for plural in COUNTED}
        self._places: dict[str, tuple[Store, str]] = {}
        """Store and name of the entry by UID of the policy or Egress."""
        self._rules: dict[str, frozenset[str]] = {}
        """Names of the rules of a policy, by its UID."""
        self._egresses: dict[str, str] = {}
        """UIDs by name."""
        self._epoch = uuid.uuid4().hex
        """Changes each time that counting restarts: agents then report all that they have counted."""
        self._reports: dict[str, tuple[str, int]] = {}
        """Account and number of the last report that was added, by Node."""
        self._sources: list[Store] = []
        """Without them nothing is known of what agents report."""
        self._stale: set[str] = set()
        """UIDs of entries that are to restart at zero: they may be from before another replica led."""
        for watched, gate, plurals, heard in (
            ("networkpolicies", GATE, PLURALS.values(), self._policy_changed),
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
                self._sources.append(source)

    def _policy_changed(self, uid: str, policy: cp.NetworkPolicy | None) -> None:
        """A policy was published or withdrawn."""
        if policy is None:
            self._end(uid)
            return
        source = policy.source_ref
        if source is None or source.type not in PLURALS:
            return
        self._rules[uid] = frozenset(rule.name for rule in policy.rules)
        if uid in self._places:
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
        self._rules.pop(uid, None)
        if (place := self._places.pop(uid, None)) is not None:
            store, key = place
            # one of the same name may have come before this one was told to be gone
            if (entry := store.get(key)) and entry[0].metadata.uid == uid:
                store.drop(key)

    def add_report(self, summary: NodeStatsSummary) -> NodeStatsSummary:
        """Add a report, once; one of another epoch contains what other replicas received, and is answered with our epoch.

        Reports without epoch, as upstream's agents have them, are added as they come. Raises Answered, Unavailable.
        """
        if not all(source.synced for source in self._sources):
            raise Unavailable("policies and Egresses are not known yet, try again")
        node, notes = summary.metadata.name, summary.metadata.annotations
        if STATS_EPOCH not in notes:
            self.add(summary)
            return NodeStatsSummary()
        whose, serial = notes.get(STATS_ACCOUNT, ""), _number(notes.get(STATS_SERIAL, ""))
        known, last = self._reports.get(node, ("", 0))
        if notes[STATS_EPOCH] == self._epoch and (whose != known or serial > last):
            self.add(summary)
            self._reports.pop(node, None)
            self._reports[node] = whose, serial
            if len(self._reports) > MAX_NODES:
                del self._reports[next(iter(self._reports))]
        return NodeStatsSummary(metadata=ObjectMetadata(name=node, annotations={STATS_EPOCH: self._epoch}))

    def add(self, summary: NodeStatsSummary) -> None:
        """Add what a Node has counted since its last report; objects that are deleted meanwhile are skipped.

        Raises Answered if something is negative; then nothing is added.
        """
        reported = {
            PLURALS[KUBERNETES]: summary.network_policies,
            PLURALS[CLUSTER]: summary.antrea_cluster_network_policies,
            PLURALS[NAMESPACED]: summary.antrea_network_policies,
            EGRESSES: summary.egresses,
        }
        if any(_negative(row) for rows in reported.values() for row in rows):
            raise ApiError(400, f"counts that Node {summary.metadata.name} reports are negative")
        for plural, rows in reported.items():
            for row in rows:
                uid = row.network_policy.uid
                store, key = self._places.get(uid, (None, ""))
                if store is self._stores[plural]:
                    self._begin_anew(uid)
                    entry = store.get(key)
                    if entry and entry[0].metadata.uid == uid:
                        store.put(key, _sum(entry[0], row, self._rules.get(uid, frozenset())))

    async def follow(self, leading: LeaderState) -> None:
        """Restart counting each time this replica begins to lead, until cancelled: other replicas got the reports before."""
        while True:
            was = leading.is_self
            await leading.changed()
            if leading.is_self and not was:
                self._stale, self._reports, self._epoch = set(self._places), {}, uuid.uuid4().hex
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
            if entry := store.get(key):
                meta = msgspec.structs.replace(entry[0].metadata, creation_timestamp=stamp())
                store.put(key, store.resource.struct(metadata=meta, traffic_stats=TrafficStats()))


class Off(Store):
    """The store of statistics while their gate is off: it is empty, and a GET of one object fails with the reason."""

    def __init__(self, resource: Resource, gate: str) -> None:
        super().__init__(resource)
        self._gate = gate

    def get(self, _key: str) -> tuple[Any, bytes] | None:
        """Raises Answered, always."""
        raise ApiError(400, f"feature {self._gate} disabled")


class StatsIntake:
    """Takes in what agents report; all other questions are for the program that computes."""

    def __init__(self, computing: Computes) -> None:
        self.counts: TrafficCounts | None = None
        self._computing = computing

    async def answer(self, question: Question) -> msgspec.Struct:
        """Raises Answered, Unavailable."""
        if question.resource != "nodestatssummaries":
            return await self._computing.answer(question)
        return self.counts.add_report(question.body) if self.counts else NodeStatsSummary()


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ApiError(400, f"annotation {STATS_SERIAL} is not a number")
    return int(text)


def _counts(row: NetworkPolicyStats) -> Iterator[TrafficStats]:
    yield row.traffic_stats
    yield from (rule.traffic_stats for rule in row.rule_traffic_stats)


def _negative(row: NetworkPolicyStats) -> bool:
    return any(min(count.packets, count.bytes, count.sessions) < 0 for count in _counts(row))


def _sum(before: Any, row: NetworkPolicyStats, names: frozenset[str]) -> Any:
    """The entry with what was counted since; of an Antrea policy, a total alone counts if there is one, as upstream has it.

    A rule counts that is one of `names`, or has counted before and is gone since.
    """
    if not row.rule_traffic_stats or row.traffic_stats.bytes or not hasattr(before, "rule_traffic_stats"):
        return msgspec.structs.replace(before, traffic_stats=_plus(before.traffic_stats, row.traffic_stats))
    rules = {rule.name: rule.traffic_stats for rule in before.rule_traffic_stats}
    total = before.traffic_stats
    for rule in row.rule_traffic_stats:
        if rule.name in rules or rule.name in names:
            rules[rule.name] = _plus(rules.get(rule.name, TrafficStats()), rule.traffic_stats)
            total = _plus(total, rule.traffic_stats)
    return msgspec.structs.replace(before, traffic_stats=total, rule_traffic_stats=_by_name(rules.items()))


def _plus(stats: TrafficStats, other: TrafficStats) -> TrafficStats:
    """The sum, or what a client can read at most: one number too large would make every list unreadable."""
    total = stats + other
    return TrafficStats(
        packets=min(total.packets, _MAX_VALUE),
        bytes=min(total.bytes, _MAX_VALUE),
        sessions=min(total.sessions, _MAX_VALUE),
    )


def _by_name(rules: Iterable[tuple[str, TrafficStats]]) -> tuple[RuleTrafficStats, ...]:
    return tuple(RuleTrafficStats(name=name, traffic_stats=stats) for name, stats in sorted(rules))
