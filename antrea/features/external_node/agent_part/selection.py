"""Selection of the network cards for the interfaces of an ExternalNode: those with their addresses, else those with their
names.

No other card is taken. One that is connected for an interface stays so while no card has the listed address or name, as after a
change by DHCP: policies apply. parity: pkg/agent/externalnode/external_node_controller.go getHostInterfaceName, which does not
look at names
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.features.external_node.machine import entity_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Set

    from antrea.facts.machine import AgentMachine, MachineInterface


class Cards(NamedTuple):
    """Network cards of a machine."""

    addresses: Mapping[str, Set[str]]
    """Addresses of each interface by its name; a connected card counts by the name of its interface."""
    connected: Mapping[str, str]
    """Names of connected interfaces by their ExternalEntities."""


class Selection(NamedTuple):
    """Interfaces to connect, and differences from the ExternalNode's list."""

    interfaces: dict[str, tuple[str, MachineInterface]]
    """ExternalEntity, and the interface as it is listed, by name."""
    troubles: tuple[str, ...]


class _NotFound(Exception):
    """Reason why no card is a listed interface."""


def selected(node: AgentMachine, cards: Cards) -> Selection:
    """Select cards with listed addresses and names before those that stay."""
    interfaces: dict[str, tuple[str, MachineInterface]] = {}
    troubles: list[str] = []
    missing: list[tuple[str, MachineInterface, str]] = []
    for entity, interface in _entities(node, troubles):
        try:
            name = _located(interface, cards)
        except _NotFound as error:
            missing.append((entity, interface, str(error)))
            continue
        if name in interfaces:
            troubles.append(f"{_shown(interface)} is {name}, as is another one: the first one is protected")
            continue
        interfaces[name] = entity, interface
        troubles += _mismatches(name, interface, cards)
    for entity, interface, reason in missing:
        name = cards.connected.get(entity, "")
        if not name or name in interfaces:
            troubles.append(f"{reason}: {_shown(interface)} is not protected")
            continue
        interfaces[name] = entity, interface
        troubles.append(f"{reason}: policies stay on {name}")
    return Selection(interfaces, tuple(troubles))


def _entities(node: AgentMachine, troubles: list[str]) -> Iterator[tuple[str, MachineInterface]]:
    """Interfaces that have an ExternalEntity of their own."""
    names: set[str] = set()
    for interface in node.interfaces:
        entity = entity_name(node.name, interface.name)
        if entity in names:
            which = f"are named {interface.name}" if interface.name else "have no name"
            troubles.append(f"several interfaces of the ExternalNode {which}: the first one is protected")
            continue
        names.add(entity)
        yield entity, interface


def _located(interface: MachineInterface, cards: Cards) -> str:
    """Return the card of an interface. Raises _NotFound."""
    holders = sorted(name for name, held in cards.addresses.items() if not held.isdisjoint(interface.ips))
    if len(holders) > 1:
        raise _NotFound(
            f"the addresses {', '.join(interface.ips)} are on several interfaces: {', '.join(holders)}"
        )
    if holders:
        return holders[0]
    if interface.name in cards.addresses:
        return interface.name
    named = f"is named {interface.name} or " if interface.name else ""
    raise _NotFound(
        f"no interface of this machine {named}has one of the addresses {', '.join(interface.ips)}"
    )


def _mismatches(name: str, interface: MachineInterface, cards: Cards) -> Iterator[str]:
    """Yield the differences of a selected card from the ExternalNode's list."""
    if interface.name not in ("", name):
        how = "has another address" if interface.name in cards.addresses else "does not exist"
        yield f"interface {interface.name} {how}: policies are enforced on {name}"
    if cards.addresses.get(name, frozenset()).isdisjoint(interface.ips):
        yield f"interface {name} has none of the addresses {', '.join(interface.ips)}: rules of others name these"


def _shown(interface: MachineInterface) -> str:
    return f"interface {interface.name or 'with ' + ', '.join(interface.ips)}"
