"""Watches tell, step by step, what upstream's told while users changed objects and it was recorded ($ANTREA_GOLDEN).

Compared is what a client knows after each step. Deliberate differences: upstream sends a policy again when nothing but its
Nodes changed, and half-done states in between, and does not say when a policy was made; rules made for several Namespaces have an order of chance there.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
from recorded_world import CONTROLPLANE, rows_of, world
from recording import inputs, lines_of_watch, of_kind

from antrea.apis import controlplane as cp
from antrea.apis import core
from antrea.controller.apiserver.process import Publisher
from antrea.controller.apiserver.store_sync import ComputeClient, publish
from antrea.controller.compute.publish_sink import PublishSink
from antrea.facts.cluster import Pod
from antrea.features.grouping.publication import ENTRIES
from antrea.features.grouping.row import namespace_row, pod_row
from antrea.features.network_policy.controller.antrea_internal_policy import NamespacedPolicy
from antrea.features.registry.api_resources import RESOURCES
from antrea.outside.apiserver.form import Json
from antrea.outside.apiserver.objects import Objects
from antrea.outside.apiserver.watcher import Selection, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from antrea.controller.apiserver import ipc
    from antrea.engine import Facts

WATCHED = ("networkpolicies", "addressgroups", "appliedtogroups", "egressgroups")
MADE_HERE = "create ANNP shop/dyn-annp"
"""A step of the recording whose steps are made here: it kept their names, not the objects."""
pytestmark = pytest.mark.skipif(
    f"# step: {MADE_HERE}" not in lines_of_watch(f"{CONTROLPLANE}/networkpolicies?watch=true"),
    reason="ANTREA_GOLDEN names no watch of these steps",
)


def pod(name: str, namespace: str, node: str, ip: str, **labels: str) -> Any:
    """A Pod of the steps, as its members in the recording show it."""
    port = {"name": "http", "containerPort": 8099}
    spec = {"nodeName": node, "serviceAccountName": "default", "containers": [{"name": "c", "ports": [port]}]}
    status = {"phase": "Running", "podIPs": [{"ip": ip}]}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    return pod_row(msgspec.convert({"metadata": meta, "spec": spec, "status": status}, core.Pod))


def changed(
    kind: str, name: str, change: Callable[[dict[str, Any]], None], group: str = "crd.antrea.io"
) -> Any:
    """The row of a recorded object after a change."""
    (one,) = [one for one in of_kind(kind, group) if one["metadata"]["name"] == name]
    change(one)
    (row,) = rows_of(one)
    return row


def space(name: str, **labels: str) -> Any:
    (one,) = [one for one in inputs("Namespace") if one["metadata"]["name"] == name]
    one["metadata"]["labels"] |= {"kubernetes.io/metadata.name": name, **labels}
    return namespace_row(msgspec.convert(one, core.Namespace))


def new_policy() -> Any:
    """It drops what comes from a selector that nobody matches."""
    rule = {"action": "Drop", "name": "d", "from": [{"podSelector": {"matchLabels": {"app": "nothing"}}}]}
    applied = [{"podSelector": {"matchLabels": {"app": "api"}}}]
    one = {
        "metadata": {"name": "dyn-annp", "namespace": "shop", "uid": made()[0], "generation": 1},
        "spec": {"priority": 1, "tier": "application", "appliedTo": applied, "ingress": [rule]},
    }
    (row,) = rows_of({"apiVersion": "crd.antrea.io/v1beta1", "kind": "NetworkPolicy", **one})
    return row


def made() -> tuple[str, str]:
    """UID of the policy that was made in a step, and the name of the group of its peers."""
    lines = lines_of_watch(f"{CONTROLPLANE}/networkpolicies?watch=true")
    found = json.loads(lines[lines.index(f"# step: {MADE_HERE}") + 1])["object"]
    return found["metadata"]["uid"], found["rules"][0]["from"]["addressGroups"][0]


NOBODY_HERE = b"1c90ef33-3ca7-5a1f-86dc-094c23e622fa"
"""The group of its peers here: the recording does not say what that selects, but that nobody is in it."""


def priority(one: dict[str, Any]) -> None:
    one["spec"]["priority"] = 2
    one["metadata"]["generation"] = 2


def steps(facts: Facts) -> dict[str, Callable[[], None]]:
    """What was done, by what the recording calls it."""

    def put(row: Any) -> Callable[[], None]:
        return lambda: facts.put(row)

    def networks(one: dict[str, Any]) -> None:
        one["spec"]["ipBlocks"] = [{"cidr": "198.51.100.0/25"}]

    gone = changed("NetworkPolicy", "same-peer-twice", lambda _: None, "networking.k8s.io")
    dyn_1 = ("dyn-1", "shop", "n1", "10.244.0.5")
    emergency = changed("ClusterNetworkPolicy", "emergency-drop", priority)
    return {
        "(idle) 5 s": lambda: None,
        "create Pod shop/dyn-1 app=web on n1": put(pod(*dyn_1, app="web")),
        "label Pod shop/dyn-1 app=api": put(pod(*dyn_1, app="api")),
        "label Pod shop/dyn-1 unrelated=x": put(pod(*dyn_1, app="api", unrelated="x")),
        "delete Pod shop/dyn-1": lambda: facts.drop(Pod, "shop/dyn-1"),
        "create Pod lab/dyn-2 app=tester on n2 (first use of nothing new on n1)": put(
            pod("dyn-2", "lab", "n2", "10.244.1.5", app="tester")
        ),
        "delete Pod lab/dyn-2": lambda: facts.drop(Pod, "lab/dyn-2"),
        "patch ACNP emergency-drop priority 2": put(emergency),
        "patch ACNP emergency-drop metadata only": put(emergency),
        MADE_HERE: put(new_policy()),
        "delete ANNP shop/dyn-annp": lambda: facts.drop(NamespacedPolicy, "shop/dyn-annp"),
        "label Namespace lab env=prod": put(space("lab", env="prod")),
        "label Namespace lab env=dev": put(space("lab", env="dev")),
        "patch ClusterGroup cg-ips": put(changed("ClusterGroup", "cg-ips", networks)),
        "delete K8s NetworkPolicy lab/same-peer-twice": lambda: facts.drop(type(gone), gone.key),
    }


class Known(NamedTuple):
    """What a client of one watch knows: of a policy its text, of a group its members."""

    policies: dict[str, str]
    groups: dict[str, frozenset[str]]

    def hear(self, kind: str, found: dict[str, Any]) -> None:
        name = found.get("metadata", {}).get("name") or found.get("name", "")
        if kind == "BOOKMARK":
            return
        if "Policy" in found["kind"]:
            self.policies.pop(name, None)
            if kind != "DELETED":
                self.policies[name] = policy(found)
            return
        before = self.groups.pop(name, frozenset())
        if kind != "DELETED":
            come = (
                found.get("addedGroupMembers") or found.get("AddedGroupMembers") or found.get("groupMembers")
            )
            gone = found.get("removedGroupMembers") or found.get("RemovedGroupMembers")
            self.groups[name] = before - members(gone) | members(come)

    def copy(self) -> Known:
        return Known(dict(self.policies), dict(self.groups))

    def since(self, before: Known) -> dict[str, Any]:
        """What came, went or became another since then; None is gone."""
        mine, old = {**self.policies, **self.groups}, {**before.policies, **before.groups}
        found: dict[str, Any] = {}
        for name in sorted(mine.keys() | old.keys()):
            now, then = mine.get(name), old.get(name)
            if now != then and isinstance(now, frozenset) and isinstance(then, frozenset):
                found[name] = (sorted(now - then), sorted(then - now))
            elif now != then:
                found[name] = sorted(now) if isinstance(now, frozenset) else now
        return found


def policy(found: dict[str, Any]) -> str:
    """Its rules sorted where their order is one of chance."""
    found["metadata"] = {key: value for key, value in found["metadata"].items() if value is not None}
    shown = msgspec.convert(found, cp.NetworkPolicy, strict=False)
    rules = tuple(sorted(shown.rules, key=lambda rule: (rule.direction, rule.priority, repr(rule))))
    meta = msgspec.structs.replace(shown.metadata, creation_timestamp="")
    return repr(msgspec.structs.replace(shown, metadata=meta, rules=rules))


def members(found: list[dict[str, Any]] | None) -> frozenset[str]:
    return frozenset(json.dumps(one, sort_keys=True) for one in found or ())


def watch_path(name: str) -> str:
    plural, _, node = name.partition(".node-")
    return f"{CONTROLPLANE}/{plural}?watch=true" + (f"&fieldSelector=nodeName%3D{node}" if node else "")


def theirs(name: str) -> Iterator[tuple[str, Known]]:
    """What a client of upstream's watch knew before each step, and at the end."""
    known = Known({}, {})
    step = ""
    for line in lines_of_watch(watch_path(name)):
        if line.startswith("# step: "):
            yield step, known.copy()
            step = line.removeprefix("# step: ")
        elif not line.startswith("#"):
            event = json.loads(line)
            known.hear(event["type"], event["object"])
    yield step, known


class Straight:
    """A channel whose other end is here: frames go into the stores as the front puts them there."""

    def __init__(self) -> None:
        self.objects = Objects(RESOURCES, ComputeClient(self))  # type: ignore[arg-type]

    def send(self, frame: ipc.Frame) -> None:
        publish(self.objects, frame)  # type: ignore[arg-type]

    async def drained(self) -> None:
        """Nothing ever waits."""


async def ours() -> dict[str, list[tuple[str, Known]]]:
    """The same of our watches."""
    facts, engine = world()
    channel = Straight()
    sink = PublishSink(Publisher(channel), lambda _policy, _nodes: None, WATCHED)  # type: ignore[arg-type]
    plan = engine.plan()
    await sink.resync([entry for entry in plan.put if isinstance(entry, ENTRIES)])
    watchers: dict[str, Watcher] = {}
    for (_, plural), store in channel.objects.stores.items():
        if plural in WATCHED:
            form = Json(store.resource)
            watchers[plural] = store.watch(Selection(), form)
            watchers[f"{plural}.node-n1"] = store.watch(Selection(node="n1"), form)
    known = {name: Known({}, {}) for name in watchers}
    found: dict[str, list[tuple[str, Known]]] = {name: [] for name in watchers}
    step = ""
    for following, act in (*steps(facts).items(), ("", None)):
        for name, watcher in watchers.items():
            hear_all(known[name], watcher)
            found[name].append((step, known[name].copy()))
        if act is not None:
            act()
            plan = engine.plan()
            put = [entry for entry in plan.put if isinstance(entry, ENTRIES)]
            await sink.apply(put, [entry for entry in plan.drop if isinstance(entry, ENTRIES)])
        step = following
    return found


def hear_all(known: Known, watcher: Watcher) -> None:
    text = watcher.pop(1 << 30)
    text = text.replace(NOBODY_HERE, made()[1].encode())
    for event in map(json.loads, text.splitlines()):
        known.hear(event["type"], event["object"])


@pytest.fixture(scope="module")
def told() -> dict[str, list[tuple[str, Known]]]:
    return asyncio.run(ours())


@pytest.mark.parametrize("name", [f"{plural}{node}" for plural in WATCHED for node in ("", ".node-n1")])
def test_a_watch_tells_what_upstreams_told(name: str, told: dict[str, list[tuple[str, Known]]]) -> None:
    mine, recording = told[name], list(theirs(name))
    assert [step for step, _ in mine] == [step for step, _ in recording]
    for (_, before), (step, after), (_, then), (_, now) in zip(
        mine, mine[1:], recording, recording[1:], strict=False
    ):
        assert after.since(before) == now.since(then), step
