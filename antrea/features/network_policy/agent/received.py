"""What the controller sent to this Node: policies, and the groups that they name, member by member.

parity: pkg/agent/controller/networkpolicy/networkpolicy_controller.go (its watches)
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from antrea.apis import controlplane as cp
from antrea.facts.fact import Fact

_ENCODER = msgspec.msgpack.Encoder()


class SentPolicy(Fact, frozen=True):
    """A policy for Pods of this Node."""

    found: cp.NetworkPolicy
    indexes = {"services": lambda row: (True,) if row.services else ()}  # noqa: RUF012

    @property
    def key(self) -> str:
        return self.found.metadata.name

    @property
    def services(self) -> tuple[str, ...]:
        """Namespace and name of each Service that its rules name."""
        return tuple(
            f"{one.namespace}/{one.name}" for rule in self.found.rules for one in rule.to.to_services
        )


class SentGroup(Fact, frozen=True):
    """A group that is known here, whether it has members or not."""

    name: str

    @property
    def key(self) -> str:
        return self.name


class SentMember(Fact, frozen=True):
    """A member of a group; two that differ in anything are two."""

    group: str
    member: cp.GroupMember
    indexes = {"group": lambda row: (row.group,)}  # noqa: RUF012

    @property
    def key(self) -> str:
        """With a digest: a table keeps a key for each member, which as text takes more memory than the member itself."""
        return f"{self.group} {blake2b(_ENCODER.encode(self.member), digest_size=16).hexdigest()}"


class SentAddressGroup(SentGroup, frozen=True):
    """Peers of rules."""


class SentAddressMember(SentMember, frozen=True):
    """A peer of rules."""


class SentAppliedGroup(SentGroup, frozen=True):
    """Whom policies are for."""


class SentAppliedMember(SentMember, frozen=True):
    """A Pod of this Node that policies are for."""

    indexes = {"group": lambda row: (row.group,), "pod": lambda row: _pods(row.member)}  # noqa: RUF012


def _pods(member: cp.GroupMember) -> tuple[str, ...]:
    """namespace/name, if it is a Pod, or, on a machine outside the cluster, an ExternalEntity."""
    one = member.pod or member.external_entity
    return (f"{one.namespace}/{one.name}",) if one else ()


KINDS: tuple[type[Fact], ...] = (
    SentPolicy,
    SentAddressGroup,
    SentAddressMember,
    SentAppliedGroup,
    SentAppliedMember,
)
"""All that the controller sends about policies."""
