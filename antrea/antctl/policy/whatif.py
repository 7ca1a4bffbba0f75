"""Effect of new policies on observed connections: each is judged with and without them, by the rules of `antctl explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from antrea.antctl.policy.recommendation import OF_ONE_POD, PROTOCOLS, workload_of
from antrea.errors import Invalid
from antrea.explain.address import pod_ips
from antrea.explain.objects import GATES, KINDS, objects
from antrea.explain.packet import ANY_PORT, Packet
from antrea.explain.verdict import judged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from antrea.antctl.explain.source import Source
    from antrea.antctl.policy.recommendation import Link
    from antrea.apis.networking import NetworkPolicy
    from antrea.explain.objects import Kind, Objects
    from antrea.explain.world import World

POLICIES = frozenset(
    (
        "kube_policies",
        "cluster_policies",
        "policies",
        "admin_policies",
        "baseline_policies",
        "tiered_policies",
    )
)
OTHERS = frozenset(("groups", "cluster_groups", "tiers"))
"""Kinds beside policies that a file may have."""
NAMESPACED = frozenset(("kube_policies", "policies", "groups"))
YOUNGEST = "9999-12-31T23:59:59Z"
MAX_PODS = 8
"""Maximum number of Pods of a workload by which a connection is judged."""


class Changed(NamedTuple):
    """A connection whose verdict would be another; `sentence` has what decides then."""

    link: Link
    before: str
    after: str
    sentence: str


class Outcome(NamedTuple):
    """Changed verdicts, the number of judged connections, and sentences on those that were not judged."""

    changed: list[Changed]
    judged: int
    unjudged: list[str]


def with_objects(
    source: Source, manifests: Iterable[Mapping[str, Any]], *, namespace: str = "default"
) -> Objects:
    """Return the objects of `source` with these added or replaced by name. Raises Invalid naming the object."""
    now = source.objects
    kinds = {(kind.api_version, kind.kind): kind for kind in KINDS if kind.field in POLICIES | OTHERS}
    for manifest in manifests:
        named = (str(manifest.get("apiVersion")), str(manifest.get("kind")))
        if named not in kinds:
            raise Invalid("/".join(named), "is not a policy, group or tier, and does not affect verdicts")
        kind = kinds[named]
        if kind.field in source.unenforced:
            raise Invalid(
                "/".join(named), f"the feature gate {GATES[kind.field]} is off: it would decide nothing"
            )
        meta = {**(manifest.get("metadata") or {})}
        if kind.field in NAMESPACED:
            meta.setdefault("namespace", namespace)
        (fresh,) = getattr(objects({kind.field: [{**manifest, "metadata": meta}]}), kind.field)
        if kind.field == "kube_policies":
            fresh = _with_policy_types(fresh)
        now = msgspec.structs.replace(now, **{kind.field: _replaced(now, kind, fresh)})
    return now


def _with_policy_types(policy: NetworkPolicy) -> NetworkPolicy:
    """Set policyTypes as kube-apiserver does where a policy has none: https://kubernetes.io/docs/reference/kubernetes-api/ (policyTypes)."""
    if policy.spec.policy_types:
        return policy
    types = ("Ingress", "Egress") if policy.spec.egress else ("Ingress",)
    return msgspec.structs.replace(policy, spec=msgspec.structs.replace(policy.spec, policy_types=types))


def _replaced(now: Objects, kind: Kind, fresh: Any) -> tuple[Any, ...]:
    """A new object is the youngest, one that is there keeps its age: by it, policies of equal priority are ordered."""
    rows = {(stored.metadata.namespace, stored.metadata.name): stored for stored in getattr(now, kind.field)}
    key = (fresh.metadata.namespace, fresh.metadata.name)
    old = rows.pop(key, None)
    uid, created = (old.metadata.uid, old.metadata.creation_timestamp) if old else ("", YOUNGEST)
    meta = msgspec.structs.replace(fresh.metadata, uid=uid, creation_timestamp=created)
    return (*rows.values(), msgspec.structs.replace(fresh, metadata=meta))


def replay(source: Source, after: Objects, links: Sequence[Link]) -> Outcome:
    """Judge observed connections by the Pods that exist now; a connection has changed if it has for any two of its Pods."""
    worlds = [source.world(objects) for objects in (source.objects, after)]
    pods = _pods_of_workloads(worlds[0], _written(source.objects, after))
    changed: list[Changed] = []
    unjudged: list[str] = []
    count = 0
    for link in sorted(links):
        try:
            packets = _packets(worlds[0], pods, link)
        except Invalid as error:
            unjudged.append(f"{link.shown}: {error}")
            continue
        count += 1
        unjudged.extend(f"{link.shown}: {text}" for text in _beyond(pods, link))
        if changes := [change for packet in packets if (change := _changed(worlds, packet, link))]:
            changed.append(min(changes, key=lambda change: change.before != "Allow"))
    return Outcome(changed, count, unjudged)


def _changed(worlds: Sequence[World], packet: Packet, link: Link) -> Changed | None:
    was, would = (judged(world, packet) for world in worlds)
    if was.verdict == would.verdict:
        return None
    return Changed(link, was.verdict, would.verdict, would.decisive.sentence)


def _written(*objects: Objects) -> bytes:
    """All policies and groups, to see whether a label is in any."""
    fields = sorted(POLICIES | OTHERS)
    return msgspec.json.encode([[getattr(each, field) for field in fields] for each in objects])


def _pods_of_workloads(world: World, written: bytes) -> dict[str, list[str]]:
    """Names of Pods by workload: one of those that differ for no policy but by their addresses."""
    idle = {key for key in OF_ONE_POD if key.encode() not in written}
    pods_by_workload: dict[str, dict[tuple[object, ...], str]] = {}
    for name, pod in sorted(world.pods.items()):
        if pod.spec.host_network or not pod.spec.node_name or not pod_ips(pod):
            continue
        member = world.member(pod)
        labels = frozenset(item for item in member.labels.items() if item[0] not in idle)
        end = f"workload/{member.namespace}/{workload_of(member.name)}"
        pods_by_workload.setdefault(end, {}).setdefault((labels, member.ports, member.account), name)
    return {end: list(names.values()) for end, names in pods_by_workload.items()}


def _beyond(pods: Mapping[str, list[str]], link: Link) -> Iterator[str]:
    """Yield sentences on workloads whose Pods differ too much to be judged by a few."""
    for end in sorted({link.source, link.target}):
        if (more := len(pods.get(end, ())) - MAX_PODS) > 0:
            yield f"{more} Pods of {end.partition('/')[2]} that differ in labels, ports or ServiceAccount"


def _packets(world: World, pods: Mapping[str, list[str]], link: Link) -> list[Packet]:
    """Between these Pods, in each family that both ends have. Raises Invalid: an end is not there, or there is none."""
    if link.protocol not in PROTOCOLS:
        raise Invalid(f"protocol {link.protocol}", "connections without ports are not judged")
    if 0 < link.unknown >= link.connections - link.denied:
        raise Invalid("direction", "which end opened these connections is unknown")
    sources, targets = (
        [(v, world.end(text, v)) for text in _texts(end, pods) for v in sorted(world.families(text))]
        for end in (link.source, link.target)
    )
    packets = [
        Packet(source, target, PROTOCOLS[link.protocol], link.port, ANY_PORT)
        for family, source in sources
        for v, target in targets
        if family == v
    ]
    if not packets:
        raise Invalid(link.source.partition("/")[2], "has no family in common with the other end")
    return packets


def _texts(end: str, pods: Mapping[str, list[str]]) -> list[str]:
    kind, _, rest = end.partition("/")
    if kind == "address":
        return [rest]
    if end not in pods:
        raise Invalid(rest, "no Pod of it is there now")
    return pods[end][:MAX_PODS]


def sentences(outcome: Outcome) -> Iterator[str]:
    """The whole, in a line or two."""
    denied = sum(change.before == "Allow" for change in outcome.changed)
    opened = sum(change.after == "Allow" for change in outcome.changed)
    yield f"{outcome.judged} connections were judged: {denied} would be denied that pass, {opened} would pass that are denied"
