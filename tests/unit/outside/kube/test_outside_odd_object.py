"""One odd object is its own trouble: of every watched kind, with a wrong value at every path, all others arrive."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from antrea.agent.feature_set import FEATURES as AGENT
from antrea.agent.node.cluster_feed import cluster_node
from antrea.apis.annotation import BGP_ROUTER_ID, L7_EXPORT
from antrea.apis.core import Node
from antrea.apis.crd.egress import Egress as CrdEgress
from antrea.apis.crd.external import ExternalEntity
from antrea.apis.networking import NetworkPolicy
from antrea.controller.compute.runtime import FEATURES as CONTROLLER
from antrea.engine import Facts
from antrea.facts.cluster import Entity
from antrea.facts.egress import Egress
from antrea.facts.member import AgentNode
from antrea.features.bgp_policy.advertised import ConditionedEgress, ConditionedService
from antrea.features.egress.agent.feature import egress_rows
from antrea.features.framework.admission import Watched
from antrea.features.grouping.row import entity_row
from antrea.features.network_policy.controller.kube_policy import KubePolicy, policy_row
from antrea.features.proxy.service import SERVICE_LABEL
from antrea.features.registry.webhooks import WATCHED
from antrea.outside.controlplane.client import WatchFeed
from antrea.outside.kube.answer import Some, change_of, page_of
from antrea.outside.kube.odd_object import REASON, OddObjects, odd_object_metrics
from antrea.outside.kube.resource_feed import ResourceFeed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from antrea.apis.core import ObjectReference
    from antrea.features.framework.controlplane_watch import GroupKind, ObjectKind

Tree = dict[str, Any]
Path = tuple[str | int, ...]
NODES = Watched("/api/v1/nodes", Node, AgentNode, cluster_node)
KINDS = {
    f"{one.path} as {one.fact.__name__}": one
    for one in (
        NODES,
        *WATCHED,
        *(one for feature in CONTROLLER for one in feature.watched),
        *(one for feature in AGENT for one in feature.watched),
    )
}
WRONG: tuple[Any, ...] = (None, 10**30, "010.0.0.0/8", ["x"], {"x": 1})
SLICES = "/apis/discovery.k8s.io/v1/{}endpointslices"
GIVE_NONE = (
    SLICES.format(""), SLICES.format("namespaces/default/"), SLICES.format("namespaces/kube-system/"),
    "/apis/crd.antrea.io/v1alpha1/nodelatencymonitors",
)  # fmt: skip
"""Kinds of which these samples give no row: only the feed's end is looked at."""
CONDITIONED = (ConditionedService, ConditionedEgress)
"""Rows of objects with a condition that the samples lack."""
TEXTS = {
    "cidr": "10.0.0.0/8", "cidrs": "10.0.0.0/8", "except": "10.1.0.0/16", "ip": "192.0.2.1", "ips": "192.0.2.1",
    "podCIDRs": "10.10.0.0/24", "podCIDR": "10.10.0.0/24", "address": "192.0.2.1", "egressIP": "192.0.2.7",
    "egressIPs": "192.0.2.7", "start": "192.0.2.1", "end": "192.0.2.9", "clusterIPs": "10.96.0.1", "rate": "10M",
    "burst": "10M", "gateway": "192.0.2.1", "addresses": "10.10.0.7", "type": "InternalIP",
    "phase": "Running", "pod": "ns/a", "podIPs": "10.10.0.7",
}  # fmt: skip
NUMBERS = {"dataplaneTag": 7, "firstPort": 1024, "lastPort": 1535}
ANNOTATIONS = {L7_EXPORT: "both", BGP_ROUTER_ID: "192.0.2.1"}


def sample(kind: Any, name: str = "", depth: int = 0) -> Any:
    """One value of this type, with something in every field."""
    match kind:
        case msgspec.inspect.Metadata():
            return sample(kind.type, name, depth)
        case msgspec.inspect.StructType():
            names = {one.encode_name for one in kind.fields}
            same = {name for name, other in (("egress", "ingress"), ("to", "from")) if other in names}
            fields = (one for one in kind.fields if depth < 9 and one.encode_name not in same)
            return {one.encode_name: sample(one.type, one.encode_name, depth + 1) for one in fields}
        case msgspec.inspect.UnionType():
            types = [one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType)]
            return sample(types[0], name, depth)
        case msgspec.inspect.DictType():
            return {"a": sample(kind.value_type, name, depth + 1)}
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            return [sample(kind.item_type, name, depth + 1)]
        case msgspec.inspect.LiteralType():
            return kind.values[0]
        case msgspec.inspect.BoolType():
            return name not in ("hostNetwork", "released")
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            return NUMBERS.get(name, 1)
        case msgspec.inspect.BytesType():
            return "YQ=="
        case _:
            return TEXTS.get(name, "a")


def whole(kind: type, name: str, version: int = 1) -> Tree:
    found: Tree = sample(msgspec.inspect.type_info(kind))
    meta = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "labels": {SERVICE_LABEL: "a"},
    }
    return {
        **found,
        "metadata": {**found["metadata"], **meta, "annotations": ANNOTATIONS, "ownerReferences": []},
    }


def paths(tree: Any, at: Path = ()) -> Iterator[Path]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*at, key)
        yield from paths(value, (*at, key))


def spoiled(tree: Tree) -> Iterator[Tree]:
    """The same with a wrong value at each path; only its identity is what kube-apiserver makes sure of."""
    number = 0
    for path in paths(tree):
        if path[0] == "metadata" and path[-1] in ("metadata", "name", "namespace", "uid", "resourceVersion"):
            continue
        for wrong in WRONG:
            number += 1
            found = copy.deepcopy(tree)
            place: Any = found
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = wrong
            found["metadata"] = found["metadata"] if isinstance(found["metadata"], dict) else {}
            found["metadata"] |= {"name": f"odd-{number}", "namespace": "ns", "resourceVersion": "7"}
            yield found


class Server:
    """A list, then changes, in the bytes of kube-apiserver; notes Events."""

    def __init__(self, objects: list[Tree], *changes: tuple[str, Tree]) -> None:
        self.page = msgspec.json.encode(
            {"kind": "XList", "apiVersion": "v1", "metadata": {}, "items": objects}
        )
        self.lines = [msgspec.json.encode({"type": kind, "object": one}) for kind, one in changes]
        self.events: list[tuple[str, str, str]] = []

    async def watch_pages(
        self,
        path: str,
        kind: type[Any],
        _: Mapping[str, str],
        *,
        trouble: Callable[[str], None],
        optional: bool = False,
        metadata_only: bool = False,
    ) -> AsyncIterator[Any]:
        found = page_of(self.page, kind, path)
        yield Some(found[1], first=True, last=True, version="1", odd=found[2])
        for line in self.lines:
            yield change_of(line, kind, path)[0]
        trouble("")

    async def create_event(self, about: ObjectReference, reason: str, message: str, **_: Any) -> None:
        self.events.append((f"{about.kind} {about.namespace}/{about.name}", reason, message))


def rows(
    watched: Watched, server: Server, component: str = "", before: Facts | None = None
) -> dict[str, Any]:
    """Of a feed that has taken in all that the server says."""
    facts = before or Facts()

    async def run() -> None:
        odd = OddObjects(watched.path, component)
        feed = ResourceFeed(server, watched.path, watched.kind, rows={watched.fact: watched.row}, odd=odd)  # type: ignore[arg-type]
        await feed.run(facts)
        making = asyncio.create_task(odd.run(server))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        making.cancel()

    asyncio.run(run())
    return {row.key: row for row in facts.all(watched.fact)}


@pytest.mark.parametrize("watched", KINDS.values(), ids=KINDS)
def test_objects_with_a_wrong_value_anywhere_end_no_feed(watched: Watched) -> None:
    good = [whole(watched.kind, name) for name in ("first", "last")]
    alone = rows(watched, Server(good))
    assert alone or watched.path in GIVE_NONE or watched.fact in CONDITIONED
    odd = [*spoiled(whole(watched.kind, "odd"))]
    assert len(odd) > 10
    found = rows(watched, Server([good[0], *odd, good[1]]))
    assert alone.items() <= found.items()
    changes = [("ADDED", good[0]), *(("MODIFIED", one) for one in odd), ("ADDED", good[1])]
    found = rows(watched, Server([], *changes, *(("DELETED", one) for one in odd)))
    assert found == alone


CASES: dict[str, tuple[Watched, Tree, str]] = {
    "an entity": (
        Watched("/apis/crd.antrea.io/v1alpha2/externalentities", ExternalEntity, Entity, entity_row),
        {"spec": {"endpoints": "http"}},
        "Expected `array`, got `str` - at `$.spec.endpoints`",
    ),
    "an Egress": (
        Watched("/apis/crd.antrea.io/v1beta1/egresses", CrdEgress, Egress, egress_rows),
        {"spec": {"egressIP": 7}},
        "Expected `str`, got `int` - at `$.spec.egressIP`",
    ),
    "a policy": (
        Watched("/apis/networking.k8s.io/v1/networkpolicies", NetworkPolicy, KubePolicy, policy_row),
        {"spec": {"ingress": [5]}},
        "Expected `object`, got `int` - at `$.spec.ingress[0]`",
    ),
}


@pytest.mark.parametrize(("watched", "odd", "why"), CASES.values(), ids=CASES)
def test_what_was_last_read_stands_and_an_event_says_why(watched: Watched, odd: Tree, why: str) -> None:
    good = whole(watched.kind, "a")
    bad = {"kind": "K", "apiVersion": "v1", **odd, "metadata": good["metadata"]}
    server = Server([good], ("MODIFIED", bad), ("MODIFIED", bad))
    assert rows(watched, server, "antrea-agent") == rows(watched, Server([good]))
    assert server.events == [
        ("K ns/a", REASON, f"{why}: what was last read of this object counts, if anything was")
    ]
    assert rows(watched, Server([good], ("MODIFIED", bad), ("DELETED", bad))) == {}
    assert rows(watched, Server([good], ("MODIFIED", bad), ("MODIFIED", good))) == rows(
        watched, Server([good])
    )


def test_metrics_count_those_that_cannot_be_read() -> None:
    watched = NODES
    odd = {"metadata": {"name": "a"}, "spec": 5}
    line = 'antrea_unreadable_object_count{resource="/api/v1/nodes"}'
    rows(watched, Server([odd, {**odd, "metadata": {"name": "b"}}]))
    assert f"{line} 2\n" in odd_object_metrics()
    rows(watched, Server([odd], ("DELETED", odd)))
    assert line not in odd_object_metrics()


def test_a_port_that_is_a_name_is_none() -> None:
    tree = {
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {"ports": [{"name": "web", "port": "http"}, {"name": "x", "port": 8}]},
    }
    assert entity_row(msgspec.convert(tree, ExternalEntity)).ports == (("x", 8, ""),)


def test_destinations_that_cannot_be_read_leave_by_the_egress_all_the_same() -> None:
    def read(**destinations: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        tree = {
            "metadata": {"name": "a"},
            "spec": {"egressIP": "192.0.2.1", "appliedTo": {}, "destinations": destinations},
        }
        (row,) = egress_rows(msgspec.convert(tree, CrdEgress))
        return row.cidrs, row.excepts

    assert read(cidrs=["192.0.2.0/24", "010.0.0.0/8"]) == ((), ())
    assert read(**{"except": ["10.0.0.0/8", "010.0.0.0/8"]}) == ((), ("10.0.0.0/8",))


TOLD = {one.plural: one for feature in AGENT for one in feature.watches}


class Stream:
    """The lines of one watch at the controller."""

    def __init__(self, *events: tuple[str, Tree]) -> None:
        self.lines = [msgspec.json.encode({"type": kind, "object": one}) for kind, one in events]

    async def stream(self, *_: Any) -> AsyncIterator[bytes]:
        for line in self.lines:
            yield line


@pytest.mark.parametrize("kind", TOLD.values(), ids=TOLD)
def test_an_odd_object_of_the_controller_keeps_no_other_from_an_agent(kind: ObjectKind | GroupKind) -> None:
    member = {"pod": {"name": "p", "namespace": "ns"}, "ips": ["CgAAAQAAAAAAAAAAAAAAAA=="]}
    good: Tree = {
        "metadata": {"name": "good"},
        "groupMembers": [member],
        "rules": [{"direction": "In", "enableLogging": False, "from": {}, "to": {}}],
        "expiredAt": None,
        "fileServer": {"url": "sftp://192.0.2.1/upload"},
        "authentication": {},
    }
    done: tuple[str, Tree] = ("BOOKMARK", {"metadata": {"annotations": {}}})
    odd = [*spoiled(good)]

    def told(*events: tuple[str, Tree]) -> set[str]:
        facts, feed = Facts(), WatchFeed(kind, "n1")
        asyncio.run(feed.run(Stream(*events), facts, lambda: None))  # type: ignore[arg-type]
        return {row.key for of in kind.facts for row in facts.all(of)}

    alone = told(("ADDED", good), done)
    assert alone
    added = [("ADDED", one) for one in odd]
    assert alone <= told(*added, ("ADDED", good), done)
    assert told(("ADDED", good), done, *added, *(("DELETED", one) for one in odd)) == alone
