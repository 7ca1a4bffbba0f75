"""Rows from the controller: policies, and the groups that they name, member by member.

parity: pkg/agent/controller/networkpolicy/networkpolicy_controller.go (its watches)
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from antrea.apis import controlplane as cp
from antrea.facts.fact import Fact

_ENCODER = msgspec.msgpack.Encoder()


class SentPolicy(Fact, frozen=True):
    """Policy for Pods of this Node."""

    policy: cp.NetworkPolicy = msgspec.field(name="found")
    indexes = {"services": lambda row: (True,) if row.services else ()}  # noqa: RUF012

    @property
    def key(self) -> str:
        return self.policy.metadata.name

    @property
    def services(self) -> tuple[str, ...]:
        """Namespace and name of each Service that its rules name."""
        return tuple(
            f"{service.namespace}/{service.name}"
            for rule in self.policy.rules
            for service in rule.to.to_services
        )


class SentGroup(Fact, frozen=True):
    """Group that is known here, with or without members."""

    name: str

    @property
    def key(self) -> str:
        return self.name


class SentMember(Fact, frozen=True):
    """Member of a group; members that differ in anything are two."""

    group: str
    member: cp.GroupMember
    indexes = {"group": lambda row: (row.group,)}  # noqa: RUF012

    @property
    def key(self) -> str:
        """Digest as the key: a table keeps a key for each member, and text would take more memory than the member itself."""
        return f"{self.group} {blake2b(_ENCODER.encode(self.member), digest_size=16).hexdigest()}"


class SentAddressGroup(SentGroup, frozen=True):
    """Peer group of rules."""


class SentAddressMember(SentMember, frozen=True):
    """Peer of rules."""


class SentAppliedGroup(SentGroup, frozen=True):
    """Group of targets of policies."""


class SentAppliedMember(SentMember, frozen=True):
    """Pod of this Node that policies are for."""

    indexes = {"group": lambda row: (row.group,), "pod": lambda row: _pods(row.member)}  # noqa: RUF012


def _pods(member: cp.GroupMember) -> tuple[str, ...]:
    """Return namespace/name, if the member is a Pod, or, on a machine outside the cluster, an ExternalEntity."""
    reference = member.pod or member.external_entity
    return (f"{reference.namespace}/{reference.name}",) if reference else ()


KINDS: tuple[type[Fact], ...] = (
    SentPolicy,
    SentAddressGroup,
    SentAddressMember,
    SentAppliedGroup,
    SentAppliedMember,
)
"""Kinds of all rows about policies from the controller."""
