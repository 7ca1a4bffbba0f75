"""Event of a Service that no Node answers for an external IP, recorded by one agent for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.engine import Act
from antrea.facts.member import GossipMember, Quorum
from antrea.features.service_external_ip.owner import NO_ENDPOINT, NO_NODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.external_ip import ExternalIPOwner
    from antrea.facts.service import Service


class RecordUnanswered(Act, frozen=True):
    """Report in an Event of the Service that no Node answers for its external IP, unless one does a moment later."""

    holder: str
    """Key of the ExternalIPOwner row."""
    ip: str
    service: str
    uid: str
    message: str


def unanswered(facts: Facts, owner: ExternalIPOwner, service: Service, me: str) -> Iterator[RecordUnanswered]:
    """Yield the Event, by the first of the living agents, if it is with the majority: others do not know."""
    if owner.why not in (NO_NODE, NO_ENDPOINT):
        return
    quorum = facts.get(Quorum)
    if quorum and quorum.has and all(me < row.node for row in facts.all(GossipMember) if row.alive):
        yield RecordUnanswered(
            owner.key, (owner.ip, owner.why), holder=owner.key, ip=owner.ip, service=owner.service, uid=service.uid,
            message=f"no Node answers for {owner.ip}: {owner.why}",
        )  # fmt: skip
