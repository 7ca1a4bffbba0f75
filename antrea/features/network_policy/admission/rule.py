"""Validation of the combination of addresses, protocols and ports in one rule.

parity: pkg/controller/networkpolicy/validate.go validateEgressMulticastAddress, validateMulticastIGMP, validateL7Protocols,
validatePort
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING

from antrea.errors import Invalid
from antrea.features.framework.admission import Installation, Warn
from antrea.features.network_policy.admission.peer import interface

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from antrea.apis.crd.network_policy import Peer, Protocol, Rule, RulePort
    from antrea.engine import Facts


def _rules(ingress: Sequence[Rule], egress: Sequence[Rule]) -> Iterator[tuple[str, Rule]]:
    for direction, rules in (("ingress", ingress), ("egress", egress)):
        for index, rule in enumerate(rules):
            yield f"spec.{direction}[{index}]", rule


def check_multicast(egress: Sequence[Rule]) -> None:
    """Check multicast groups: allowed or dropped, in a rule of their own. Raises Invalid."""
    for index, rule in enumerate(egress):
        path = f"spec.egress[{index}]"
        multicast = unicast = selected = False
        for number, peer in enumerate(rule.to):
            if peer.ip_block is None:
                continue
            where = f"{path}.to[{number}].ipBlock.cidr"
            if interface(peer.ip_block.cidr, where).ip.is_multicast:
                multicast = True
            else:
                unicast = True
            selected = selected or _selects(peer)
            if multicast and rule.action in ("Pass", "Reject"):
                raise Invalid(f"{path}.action", "multicast does not support action Pass or Reject")
        if multicast and unicast:
            raise Invalid(
                f"{path}.to", "can not set multicast groupAddress and unicast ip address at the same time"
            )
        if multicast and selected:
            raise Invalid(f"{path}.to", "can not set multicast groupAddress and selectors at the same time")


def _selects(peer: Peer) -> bool:
    selectors = (
        peer.pod_selector, peer.namespace_selector, peer.namespaces, peer.external_entity_selector,
        peer.service_account, peer.node_selector,
    )  # fmt: skip
    return any(selector is not None for selector in selectors)


def check_igmp(ingress: Sequence[Rule], egress: Sequence[Rule]) -> None:
    """Check IGMP, which excludes others: as upstream, also no later rule may then name ports or peers. Raises Invalid."""
    igmp = icmp = False
    for path, rule in _rules(ingress, egress):
        for index, protocol in enumerate(rule.protocols):
            if protocol.igmp is not None:
                igmp = True
                _check_group(protocol, f"{path}.protocols[{index}].igmp")
                if rule.action in ("Pass", "Reject"):
                    raise Invalid(f"{path}.action", "protocol IGMP does not support Pass or Reject")
            icmp = icmp or protocol.icmp is not None
        if igmp and (rule.ports or rule.to_services or rule.from_ or rule.to or icmp):
            raise Invalid(
                path, "protocol IGMP can not be used with other protocols or other properties like from, to"
            )


def _check_group(protocol: Protocol, path: str) -> None:
    text = protocol.igmp.group_address if protocol.igmp else ""
    if not text:
        return
    try:
        multicast = ip_address(text).is_multicast
    except ValueError:
        multicast, text = False, "<nil>"
    if not multicast:
        raise Invalid(f"{path}.groupAddress", f"groupAddress {text} is not multicast address")


def check_l7(facts: Facts, ingress: Sequence[Rule], egress: Sequence[Rule]) -> None:
    """Check application protocols: behind their gate, allowed only, HTTP over TCP. Raises Invalid."""
    for path, rule in _rules(ingress, egress):
        if not rule.l7_protocols:
            continue
        if "L7NetworkPolicy" not in (facts.get(Installation) or Installation()).gates:
            raise Invalid(
                f"{path}.l7Protocols", "layer 7 protocols can only be used when L7NetworkPolicy is enabled"
            )
        if rule.action != "Allow":
            raise Invalid(f"{path}.action", "layer 7 protocols only support Allow")
        if rule.to_services:
            raise Invalid(f"{path}.toServices", "layer 7 protocols can not be used with toServices")
        if any(protocol.http is not None for protocol in rule.l7_protocols):
            _check_below_http(rule, path)


def _check_below_http(rule: Rule, path: str) -> None:
    for index, port in enumerate(rule.ports):
        if port.protocol not in (None, "TCP"):
            raise Invalid(
                f"{path}.ports[{index}].protocol",
                "HTTP protocol can only be used when layer 4 protocol is TCP or unset",
            )
    if rule.protocols:
        raise Invalid(f"{path}.protocols", "HTTP protocol can not be used with protocol IGMP or ICMP")


def check_ports(ingress: Sequence[Rule], egress: Sequence[Rule]) -> None:
    """Check that ports have 16 bits, and ranges have both ends, in order. Raises Invalid."""
    for path, rule in _rules(ingress, egress):
        for index, port in enumerate(rule.ports):
            _check_port(port, f"{path}.ports[{index}]")


MAX_PORT = 65535
NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")


def port_doubts(ingress: Sequence[Rule], egress: Sequence[Rule]) -> Iterator[Warn]:
    """Warn about ports that match other packets than their author may think."""
    for path, rule in _rules(ingress, egress):
        for index, port in enumerate(rule.ports):
            at = f"{path}.ports[{index}].port"
            if port.port == 0:
                yield Warn(f"{at}: 0 means every port")
            elif isinstance(port.port, str) and port.port.isdigit():
                yield Warn(f"{at}: {port.port!r} is the name of a port; its number is written without quotes")
            elif isinstance(port.port, str) and not NAME.fullmatch(port.port):
                yield Warn(f"{at}: no container's port has the name {port.port!r}, so it matches nothing")


def _check_number(number: object, path: str) -> None:
    """Check a port number, which upstream stores unchecked, and its agents fail with it."""
    if isinstance(number, int) and not 0 <= number <= MAX_PORT:
        raise Invalid(path, f"{number} is not a port: it must be 1 to {MAX_PORT}")


def _check_port(port: RulePort, path: str) -> None:
    for name, number in (
        ("port", port.port),
        ("endPort", port.end_port),
        ("sourcePort", port.source_port),
        ("sourceEndPort", port.source_end_port),
    ):
        _check_number(number, f"{path}.{name}")
    if port.end_port is not None:
        where = f"{path}.endPort"
        if port.port is None:
            raise Invalid(where, "if `endPort` is specified `port` must be specified")
        if isinstance(port.port, str):
            raise Invalid(where, "if `port` is a string `endPort` cannot be specified")
        if port.end_port < port.port:
            raise Invalid(where, "`endPort` should be greater than or equal to `port`")
    if port.source_end_port is not None:
        where = f"{path}.sourceEndPort"
        if port.source_port is None:
            raise Invalid(where, "if `sourceEndPort` is specified `sourcePort` must be specified")
        if port.source_end_port < port.source_port:
            raise Invalid(where, "`sourceEndPort` should be greater than or equal to `sourcePort`")
