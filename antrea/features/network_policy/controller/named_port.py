"""Port names in policies that no concerned Pod declares: sentences for the status and the Event.

The author of the policy may have misspelled the name: an Allow by it lets nothing in, a Drop by it leaves the port open. The
declared names are collected only for the groups of rules that have port names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.apis.network_policy_api.part import GROUP
from antrea.apis.network_policy_api.place import PLACES
from antrea.apis.shown import one_line
from antrea.facts.external_ip import FencedLeadership
from antrea.facts.group import GroupPorts, GroupSelector, PublishedGroup
from antrea.features.framework.event import RecordEvent
from antrea.features.grouping.member import PORTS
from antrea.features.network_policy.controller.group import GroupUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.apis import controlplane as cp
    from antrea.engine import Facts
    from antrea.features.network_policy.controller.antrea_peer import ChosenGroup

REASON = "PortNameUnknown"
MAX_NAMES = 3
"""Maximum number of names that one Event or condition lists."""
MAX_LENGTH = 63
"""Maximum number of characters of a name that are shown."""
API_VERSIONS = {
    "K8sNetworkPolicy": "networking.k8s.io/v1",
    "AntreaNetworkPolicy": "crd.antrea.io/v1beta1",
    "AntreaClusterNetworkPolicy": "crd.antrea.io/v1beta1",
}
KINDS = {"AntreaClusterNetworkPolicy": "ClusterNetworkPolicy"}


class NamedPorts(NamedTuple):
    """Port names of the rules with one number in a policy, and the groups in which these are looked up."""

    services: dict[cp.Service, None]
    groups: dict[str, None]


def port_parts(services: Iterable[cp.Service], name: str) -> tuple[PublishedGroup, ...]:
    """Return the group of this name as one whose named ports are collected, if one of the ports has a name."""
    return (PublishedGroup(PORTS, name),) if names_ports(services) else ()


def port_rows(chosen: Iterable[ChosenGroup]) -> Iterator[GroupSelector | GroupUse]:
    """Yield rows by which the named ports of these groups are collected."""
    for group in chosen:
        for row in group.rows:
            if isinstance(row, GroupSelector):
                yield row.with_parts((PublishedGroup(PORTS, group.name),))
            elif isinstance(row, GroupUse):
                yield GroupUse(PORTS, row.group)


def names_ports(services: Iterable[cp.Service]) -> bool:
    """Whether one of them has a name in place of its number."""
    return any(isinstance(service.port, str) for service in services)


def unknown_ports(facts: Facts, policy: cp.NetworkPolicy) -> tuple[str, ...]:
    """Return a sentence for each port name that no concerned Pod declares, one more than are shown at most.

    A rule whose selectors select no Pod (yet) is left out. Peers that are blocks or domain names never have port names.
    """
    sentences: list[str] = []
    for (direction, number), named in _named(policy).items():
        rows = (facts.get(GroupPorts, name) for name in named.groups)
        known = {part for row in rows if row is not None for part in row.parts}
        if not known and (direction == "In" or named.groups):
            continue
        for service in named.services:
            if len(sentences) <= MAX_NAMES and not _has(known, service):
                sentences.append(_sentence(direction, number, service))
    return tuple(sentences)


def _named(policy: cp.NetworkPolicy) -> dict[tuple[str, int], NamedPorts]:
    """Collect named ports by direction and number of the rule as written: one rule may have become several."""
    by_rule: dict[tuple[str, int], NamedPorts] = {}
    counts = {"In": 0, "Out": 0}
    for rule in policy.rules:
        number = counts[rule.direction] if rule.priority is None or rule.priority < 0 else rule.priority
        counts[rule.direction] += 1
        if not names_ports(rule.services):
            continue
        own_groups = rule.applied_to_groups or policy.applied_to_groups
        groups = own_groups if rule.direction == "In" else rule.to.address_groups
        named = by_rule.setdefault((rule.direction, number), NamedPorts({}, {}))
        named.services.update(
            dict.fromkeys(service for service in rule.services if isinstance(service.port, str))
        )
        named.groups.update(dict.fromkeys(groups))
    return by_rule


def _has(known: set[tuple[str, str]], service: cp.Service) -> bool:
    if service.protocol:
        return (str(service.port), service.protocol) in known
    return any(name == service.port for name, _ in known)


def _sentence(direction: str, number: int, service: cp.Service) -> str:
    field, whose = (
        ("ingress", "that the policy is for") if direction == "In" else ("egress", "among its peers")
    )
    protocol = f" with protocol {service.protocol}" if service.protocol else ""
    name = one_line(str(service.port)[:MAX_LENGTH])
    return f"spec.{field}[{number}]: no Pod {whose} has a port named '{name}'{protocol}: the rule matches nothing by it"


def joined_ports(sentences: tuple[str, ...]) -> str:
    """Join all sentences into one text, up to a bound."""
    more = ("and more",) if len(sentences) > MAX_NAMES else ()
    return "; ".join((*sentences[:MAX_NAMES], *more))


def unknown_port_event(
    facts: Facts, source: cp.NetworkPolicyReference, sentences: tuple[str, ...]
) -> Iterator[RecordEvent]:
    """Yield the Event on the policy, in the leader, if there are sentences."""
    if not sentences or facts.get(FencedLeadership) is None:
        return
    if (place := PLACES.get(source.type)) is not None:
        version, kind = f"{GROUP}/{place.version}", place.kind
    else:
        version, kind = API_VERSIONS[source.type], KINDS.get(source.type, "NetworkPolicy")
    text = joined_ports(sentences)
    yield RecordEvent(
        f"{source.uid} ports", text, version, kind, source.name, source.uid,
        REASON, text, warning=True, namespace=source.namespace,
    )  # fmt: skip
