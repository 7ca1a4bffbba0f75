"""Condition Advertised of Services and Egresses: which Nodes advertise their addresses, and to which routers.

Agents report it. The last report of a Node counts until there is another one, no policy selects the Node any more, or no report has come
for minutes (`controller_part`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from antrea.apis import core
from antrea.apis.crd import egress
from antrea.apis.crd.part import Condition
from antrea.apis.meta import Status as Result
from antrea.apis.service_address import ADVERTISED
from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.facts.fact import Fact
from antrea.facts.family import is_ipv6
from antrea.features.bgp_policy.api_resource import SUMMARIES
from antrea.features.bgp_policy.followed import FollowedPolicy
from antrea.features.bgp_policy.summary import EGRESS, MAX_OBJECTS, SERVICE
from antrea.features.framework.address import canonical
from antrea.features.framework.admission import Watched
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.label import is_object_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.controlplane_report import AdvertisedObject, NodeBgpSummary
    from antrea.engine import Facts
    from antrea.features.framework.query import Query

MANAGER: Final = "antrea-controller-bgp"
"""Field manager of its own: others of the controller write other conditions of the same objects."""
TYPES: Final = {SERVICE: ADVERTISED, EGRESS: "Advertised"}
"""Types of the condition; one of a Service has the prefix that Kubernetes asks for."""
PATHS: Final = {
    SERVICE: "/api/v1/namespaces/{}/services/{}",
    EGRESS: "/apis/crd.antrea.io/v1beta1/egresses/{1}",
}
MAX_NODES, MAX_PEERS = 5, 4
"""Nodes that a message names, and routers of each."""
MAX_ROUTERS: Final = 256
"""Routers of one summary."""


class NodeSpeaker(Fact, frozen=True):
    """Routers with which a Node has an established session; reports of its agent write it."""

    node: str
    peers: tuple[str, ...]
    serial: int
    """Counts the reports."""

    @property
    def key(self) -> str:
        return self.node


class NodeAdvertisement(Fact, frozen=True):
    """An object whose addresses a Node advertises; reports of its agent write it."""

    node: str
    object: str
    """Kind, Namespace and name: Service/default/web, Egress//web."""
    families: tuple[str, ...]

    indexes: ClassVar[Mapping[str, Callable[[NodeAdvertisement], Iterable[Hashable]]]] = {
        "object": lambda row: (row.object,),
        "node": lambda row: (row.node,),
    }

    @property
    def key(self) -> str:
        return f"{self.node} {self.object}"


class ReportsComplete(Fact, frozen=True):
    """Nodes have had time to report to this controller; those without a report by now advertise nothing."""


class _Conditioned(Fact, frozen=True):
    """An object that has the condition."""

    object: str

    @property
    def key(self) -> str:
        return self.object


class ConditionedService(_Conditioned, frozen=True):
    """A Service that has the condition; the feed of Services writes it."""


class ConditionedEgress(_Conditioned, frozen=True):
    """An Egress that has the condition; the feed of Egresses writes it."""


def conditioned_service(stored: core.Service) -> ConditionedService | None:
    """Make the row of a Service; None for one without the condition."""
    if all(row.type != TYPES[SERVICE] for row in stored.status.conditions):
        return None
    return ConditionedService(f"{SERVICE}/{stored.metadata.namespace}/{stored.metadata.name}")


def conditioned_egress(stored: egress.Egress) -> ConditionedEgress | None:
    """Make the row of an Egress; None for one without the condition."""
    if all(row.type != TYPES[EGRESS] for row in stored.status.conditions):
        return None
    return ConditionedEgress(f"{EGRESS}//{stored.metadata.name}")


def record_summary(facts: Facts, posted: NodeBgpSummary) -> None:
    """Record the report of an agent; one of a Node that no policy selects only withdraws. What is not well-formed is left out."""
    node = posted.metadata.name
    wanted = {}
    if facts.get(FollowedPolicy, node) is not None:
        rows = (_row(node, item) for item in posted.objects[:MAX_OBJECTS])
        wanted = {row.key: row for row in rows if row is not None}
    for row in facts.by(NodeAdvertisement, "node", node):
        if row.key not in wanted:
            facts.drop(NodeAdvertisement, row.key)
    if facts.get(FollowedPolicy, node) is None:
        facts.drop(NodeSpeaker, node)
        return
    for row in wanted.values():
        if facts.get(NodeAdvertisement, row.key) != row:
            facts.put(row)
    peers = sorted({ip for text in posted.peers[:MAX_ROUTERS] if (ip := canonical(text))})
    before = facts.get(NodeSpeaker, node)
    facts.put(NodeSpeaker(node, tuple(peers), before.serial + 1 if before else 1))


def _row(node: str, item: AdvertisedObject) -> NodeAdvertisement | None:
    names = (item.namespace, item.name) if item.kind == SERVICE else (item.name,)
    if item.kind not in TYPES or not all(map(is_object_name, names)):
        return None
    families = tuple(family for family in ("IPv4", "IPv6") if family in item.ip_families)
    return NodeAdvertisement(node, f"{item.kind}/{item.namespace}/{item.name}", families)


def forget_node(facts: Facts, node: str) -> None:
    """Drop what a Node reported."""
    facts.drop(NodeSpeaker, node)
    for row in facts.by(NodeAdvertisement, "node", node):
        facts.drop(NodeAdvertisement, row.key)


def advertised_status(facts: Facts, name: str) -> Iterator[Status]:
    """Yield the condition of an object that a Node advertises."""
    rows = sorted(facts.by(NodeAdvertisement, "object", name), key=lambda row: row.node)
    rows = [row for row in rows if facts.get(FollowedPolicy, row.node) is not None]
    if rows:
        yield _status(name, _condition(facts, name, rows))


def stale_status(facts: Facts, row: _Conditioned) -> Iterator[Status]:
    """Yield the removal of the condition from an object that no Node advertises, once all Nodes have reported."""
    if any(
        facts.get(FollowedPolicy, advertisement.node) is not None
        for advertisement in facts.by(NodeAdvertisement, "object", row.object)
    ):
        return
    followers = facts.all(FollowedPolicy)
    if facts.get(ReportsComplete) is None and not all(
        facts.get(NodeSpeaker, follower.node) is not None for follower in followers
    ):
        return
    yield _status(row.object, Condition(TYPES[row.object.partition("/")[0]]))


def _status(name: str, condition: Condition) -> Status:
    kind, namespace, plain = name.split("/")
    return Status(
        path=PATHS[kind].format(namespace, plain),
        kind=kind,
        manager=MANAGER,
        conditions=(condition,),
        keyed=kind == SERVICE,
    )


def _condition(facts: Facts, name: str, rows: list[NodeAdvertisement]) -> Condition:
    kind = TYPES[name.partition("/")[0]]
    pairs = [(row.node, _peers(facts, row)) for row in rows]
    speaking = [(node, peers) for node, peers in pairs if peers]
    if not speaking:
        nodes = _listed([node for node, _ in pairs], MAX_NODES)
        return Condition(
            kind, "False", reason="NoSession", message=f"not advertised, without a BGP session: {nodes}"
        )
    texts = [f"{node} to {_listed(list(peers), MAX_PEERS)}" for node, peers in speaking[:MAX_NODES]]
    more = f"; {len(speaking) - MAX_NODES} more Nodes" if len(speaking) > MAX_NODES else ""
    return Condition(
        kind, "True", reason="Advertised", message=f"advertised by BGP: {'; '.join(texts)}{more}"
    )


def _peers(facts: Facts, row: NodeAdvertisement) -> tuple[str, ...]:
    """Return the routers with a session of a family in which the Node advertises the object."""
    speaker = facts.get(NodeSpeaker, row.node)
    if speaker is None:
        return ()
    return tuple(peer for peer in speaker.peers if ("IPv6" if is_ipv6(peer) else "IPv4") in row.families)


def _listed(names: list[str], limit: int) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{', '.join(names[:limit])}{more}"


def _reported(facts: Facts, query: Query) -> Result:
    record_summary(facts, query.posted)
    return Result(status="Success", code=201)


FEATURE = ControllerFeature(
    name="BGPAdvertised",
    watched=(Watched("/api/v1/services", core.Service, ConditionedService, conditioned_service),),
    units=(
        Unit(NodeAdvertisement, advertised_status, by="object"),
        Unit(ConditionedService, stale_status),
    ),
    answers={(SUMMARIES, "", "create"): _reported},
)
EGRESSES = ControllerFeature(
    name="BGPAdvertisedEgresses",
    gate="Egress",
    watched=(
        Watched("/apis/crd.antrea.io/v1beta1/egresses", egress.Egress, ConditionedEgress, conditioned_egress),
    ),
    units=(Unit(ConditionedEgress, stale_status),),
)
