"""What policies would change of what was seen: each connection is judged with and without them, by the explanation's own rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from antrea.antctl.policy.recommendation import PROTOCOLS, workload_of
from antrea.errors import Invalid
from antrea.explain.objects import KINDS, objects
from antrea.explain.packet import Packet
from antrea.explain.verdict import judged
from antrea.explain.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from antrea.antctl.explain.source import Source
    from antrea.antctl.policy.recommendation import Link
    from antrea.explain.objects import Kind, Objects

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


class Changed(NamedTuple):
    """A connection whose verdict would be another; `sentence` has what decides then."""

    link: Link
    before: str
    after: str
    sentence: str


class Outcome(NamedTuple):
    """What would change, how many connections were judged, and which were not, in sentences."""

    changed: list[Changed]
    judged: int
    unjudged: list[str]


def with_objects(now: Objects, found: Iterable[Mapping[str, Any]], *, namespace: str = "default") -> Objects:
    """`now`, with these objects in place of those of their names. Raises Invalid naming the object."""
    kinds = {(kind.api_version, kind.kind): kind for kind in KINDS if kind.field in POLICIES | OTHERS}
    for one in found:
        named = (str(one.get("apiVersion")), str(one.get("kind")))
        if named not in kinds:
            raise Invalid("/".join(named), "is no policy, group or tier that policies are judged by")
        kind = kinds[named]
        meta = {**(one.get("metadata") or {})}
        if kind.field in NAMESPACED:
            meta.setdefault("namespace", namespace)
        (fresh,) = getattr(objects({kind.field: [{**one, "metadata": meta}]}), kind.field)
        now = msgspec.structs.replace(now, **{kind.field: _replaced(now, kind, fresh)})
    return now


def _replaced(now: Objects, kind: Kind, fresh: Any) -> tuple[Any, ...]:
    key = (fresh.metadata.namespace, fresh.metadata.name)
    rows = getattr(now, kind.field)
    return (*(one for one in rows if (one.metadata.namespace, one.metadata.name) != key), fresh)


def replay(source: Source, after: Objects, links: Sequence[Link]) -> Outcome:
    """Of what was seen, by one Pod of each workload that is there now."""
    worlds = [
        World(found, source.proxy, node_policies=source.node_policies) for found in (source.objects, after)
    ]
    pods = _pods_of_workloads(worlds[0])
    changed: list[Changed] = []
    unjudged: list[str] = []
    for link in sorted(links):
        try:
            packet = _packet(worlds[0], pods, link)
        except Invalid as why:
            unjudged.append(f"{link.shown}: {why}")
            continue
        was, would = (judged(world, packet) for world in worlds)
        if was.verdict != would.verdict:
            changed.append(Changed(link, was.verdict, would.verdict, would.decisive.sentence))
    return Outcome(changed, len(links) - len(unjudged), unjudged)


def _pods_of_workloads(world: World) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in sorted(world.pods):
        namespace, _, pod = name.partition("/")
        found.setdefault(f"workload/{namespace}/{workload_of(pod)}", []).append(name)
    return found


def _packet(world: World, pods: Mapping[str, list[str]], link: Link) -> Packet:
    """Raises Invalid: an end is not there, or both have no family in common."""
    texts = [_text(end, pods) for end in (link.source, link.target)]
    families = set.intersection(*(world.families(text) for text in texts))
    if not families:
        raise Invalid(texts[0], f"has no family in common with {texts[1]}")
    source, target = (world.end(text, min(families)) for text in texts)
    return Packet(source, target, PROTOCOLS[link.protocol], link.port, 40000)


def _text(end: str, pods: Mapping[str, list[str]]) -> str:
    kind, _, rest = end.partition("/")
    if kind == "address":
        return rest
    names = pods.get(end, ())
    if not names:
        raise Invalid(rest, "no Pod of it is there now")
    return names[0]


def sentences(outcome: Outcome) -> Iterator[str]:
    """The whole, in a line or two."""
    denied = sum(one.before == "Allow" for one in outcome.changed)
    opened = sum(one.after == "Allow" for one in outcome.changed)
    yield f"{outcome.judged} connections were judged: {denied} would be denied that pass, {opened} would pass that are denied"
