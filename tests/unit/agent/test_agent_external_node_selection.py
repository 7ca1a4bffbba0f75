"""Which cards the interfaces of an ExternalNode are: by address, by name, or the one that is connected; never another."""

from __future__ import annotations

from antrea.facts.machine import AgentMachine, MachineInterface
from antrea.features.external_node.agent_part.selection import Cards, selected
from antrea.features.external_node.machine import entity_name

CARDS = {"eth0": {"192.0.2.1", "2001:db8::1"}, "eth1": {"198.51.100.1"}, "eth2": set[str]()}
ETH1 = entity_name("vm1", "eth1")


def found(
    *listed: tuple[str, tuple[str, ...]], connected: dict[str, str] | None = None
) -> tuple[dict[str, str], str]:
    """ExternalEntities by interface, and the troubles."""
    interfaces = tuple(MachineInterface(name, ips) for name, ips in listed)
    node = AgentMachine("vms", "vm1", interfaces=interfaces)
    chosen = selected(node, Cards(CARDS, connected or {}))
    return {name: entity for name, (entity, _) in chosen.interfaces.items()}, "; ".join(chosen.troubles)


def test_an_interface_is_the_card_with_one_of_its_addresses() -> None:
    assert found(("", ("192.0.2.1",))) == ({"eth0": "vm1"}, "")
    assert found(("", ("192.0.2.99", "2001:db8::1"))) == ({"eth0": "vm1"}, "")


def test_addresses_go_before_the_name() -> None:
    """As upstream, which looks at addresses only."""
    ports, why = found(("eth1", ("192.0.2.1",)))
    assert ports == {"eth0": ETH1}
    assert why == "interface eth1 has another address: policies are enforced on eth0"
    ports, why = found(("eth7", ("192.0.2.1",)))
    assert list(ports) == ["eth0"]
    assert "eth7 does not exist" in why


def test_a_card_with_the_name_needs_no_address() -> None:
    ports, why = found(("eth2", ("203.0.113.1",)))
    assert list(ports) == ["eth2"]
    assert "interface eth2 has none of the addresses 203.0.113.1" in why


def test_no_other_card_is_taken() -> None:
    """Nor the one that is connected for another ExternalEntity."""
    for connected in ({}, {ETH1: "eth0"}):
        ports, why = found(("", ("203.0.113.1",)), connected=connected)
        assert ports == {}
        assert (
            why == "no interface of this machine has one of the addresses 203.0.113.1: "
            "interface with 203.0.113.1 is not protected"
        )


def test_what_is_connected_for_the_interface_stays() -> None:
    ports, why = found(("", ("203.0.113.1",)), connected={"vm1": "eth0"})
    assert ports == {"eth0": "vm1"}
    assert why.endswith("policies stay on eth0")


def test_a_card_with_listed_addresses_goes_before_one_that_stays() -> None:
    ports, why = found(("", ("203.0.113.1",)), ("eth1", ("192.0.2.1",)), connected={"vm1": "eth0"})
    assert ports == {"eth0": ETH1}
    assert "interface with 203.0.113.1 is not protected" in why


def test_addresses_on_several_cards_are_refused() -> None:
    ports, why = found(("eth0", ("192.0.2.1", "198.51.100.1")))
    assert ports == {}
    assert "are on several interfaces: eth0, eth1" in why


def test_several_interfaces_are_a_card_and_an_entity_each() -> None:
    ports, why = found(("eth0", ("192.0.2.1",)), ("eth1", ("198.51.100.1",)))
    assert (ports, why) == ({"eth0": entity_name("vm1", "eth0"), "eth1": ETH1}, "")


def test_interfaces_that_cannot_be_told_apart_are_reported() -> None:
    for listed, words in (
        (
            (("", ("192.0.2.1",)), ("", ("198.51.100.1",))),
            "several interfaces of the ExternalNode have no name",
        ),
        ((("", ("192.0.2.1",)), ("a", ("2001:db8::1",))), "interface a is eth0, as is another one"),
    ):
        ports, why = found(*listed)
        assert ports == {"eth0": "vm1"}
        assert words in why
