"""`antctl get bgppolicy`, `bgppeers` and `bgproutes`, with upstream's columns and options.

parity: pkg/antctl/antctl.go, pkg/agent/apis/types.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.features.bgp_policy.route_type import TYPES
from antrea.features.framework.command import DataCommand, Flag, field

if TYPE_CHECKING:
    from antrea.features.framework.command import Row


def _members(row: Row) -> str:
    return ",".join(map(str, row.get("memberASNs") or ()))


def _families(what: str) -> tuple[Flag, ...]:
    return tuple(
        Flag(f"ipv{family}-only", "", f"Get {what.format(family)} only", is_bool=True) for family in (4, 6)
    )


COMMANDS = (
    DataCommand(
        "get",
        "bgppolicy",
        "A",
        "Print effective bgppolicy information",
        "/bgppolicy",
        long="Print effective bgppolicy information including name, local ASN, router ID, listen port, confederation identifier and"
        " member ASNs",
        example="  antctl get bgppolicy",
        columns=(
            ("NAME", field("name")),
            ("ROUTER-ID", field("routerID")),
            ("LOCAL-ASN", field("localASN")),
            ("LISTEN-PORT", field("listenPort")),
            ("CONFEDERATION-IDENTIFIER", field("confederationIdentifier")),
            ("MEMBER-ASNs", _members),
        ),
    ),
    DataCommand(
        "get",
        "bgppeers",
        "A",
        "Print the current status of bgp peers of effective bgppolicy",
        "/bgppeers",
        ("bgppeer",),
        "Print the current status of bgp peers of effective bgppolicy which includes peer IP address with port, asn and state",
        "  antctl get bgppeers\n  antctl get bgppeers --ipv4-only\n  antctl get bgppeers --ipv6-only",
        flags=_families("IPv{} bgp peers"),
        columns=(("PEER", field("peer")), ("ASN", field("asn")), ("STATE", field("state"))),
        ordered=False,
    ),
    DataCommand(
        "get",
        "bgproutes",
        "A",
        "Print the advertised bgp routes.",
        "/bgproutes",
        ("bgproute",),
        example="  antctl get bgproutes\n  antctl get bgproutes --ipv4-only\n  antctl get bgproutes --ipv6-only\n"
        "  antctl get bgproutes -T EgressIP",
        flags=(
            *_families("advertised IPv{} bgp routes"),
            Flag("type", "T", f"Get advertised bgp routes of a specific type: {', '.join(TYPES)}"),
        ),
        columns=(("ROUTE", field("route")), ("TYPE", field("type")), ("K8S-OBJ-REF", field("k8sObjRef"))),
        ordered=False,
    ),
)
