"""The action that sends a packet through connection tracking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.family import is_ipv6
from antrea.openflow.field import Action, Field
from antrea.openflow.table import Target, symbol

if TYPE_CHECKING:
    from collections.abc import Iterable

NAT = "nat"
"""Translate as the connection was translated when it was committed."""


def _endpoint(address: str, port: int | None) -> str:
    if port is None:
        return address
    return f"[{address}]:{port}" if is_ipv6(address) else f"{address}:{port}"


def nat_src(address: str) -> str:
    """Translate the source of the connection that is committed."""
    return f"nat(src={address})"


def nat_dst(address: str, port: int | None = None) -> str:
    """Translate the destination of the connection that is committed."""
    return f"nat(dst={_endpoint(address, port)})"


def ct(
    zone: int | Field,
    *,
    commit: bool = False,
    table: Target | None = None,
    nat: str = "",
    then: Iterable[Action] = (),
) -> Action:
    """Track the packet in `zone` (a number, or the register that holds it) and continue in `table`.

    `then` runs on the connection when it is committed: loads of ct_mark and ct_label, moves into them.
    """
    if then and not commit:
        raise ValueError("only a committed connection can be marked")
    parts = ["commit"] if commit else []
    if table is not None:
        parts.append(f"table={symbol(table)}")
    parts.append(f"zone={zone.nxm if isinstance(zone, Field) else int(zone)}")
    if nat:
        parts.append(nat)
    if inner := ",".join(then):
        parts.append(f"exec({inner})")
    return Action(f"ct({','.join(parts)})")
