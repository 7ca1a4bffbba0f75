"""The action by which OVS itself adds a flow: session affinity and direct server return remember a choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.openflow.cookie import LEARNED_ROUND, cookie
from antrea.openflow.field import Action, Field, Mark

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.openflow.table import Table

_NUMBERS = {"tcp": 6, "udp": 17, "sctp": 132}


def learn(
    table: Table,
    priority: int,
    *,
    cookie_of: tuple[int, int],
    timeouts: Iterable[str],
    specs: Iterable[str],
) -> Action:
    """Add a flow to `table` made of `specs`, see the functions below.

    `cookie_of` is category and object id. The cookie has round 0, and the flows go when the flow that
    learns goes (delete_learned), so they survive a restart and fall with their Service.
    """
    value = cookie(LEARNED_ROUND, *cookie_of)
    head = (f"table={{{table.name}}}", *timeouts, f"priority={int(priority)}", "delete_learned")
    return Action(f"learn({','.join((*head, f'cookie={value:#x}', *specs))})")


def idle_timeout(seconds: int) -> str:
    """Remove the learned flow when no packet has matched it for `seconds`."""
    return f"idle_timeout={seconds}"


def hard_timeout(seconds: int) -> str:
    """Remove the learned flow `seconds` after it was learned."""
    return f"hard_timeout={seconds}"


def fin_idle_timeout(seconds: int) -> str:
    """The idle timeout from the first TCP FIN or RST on."""
    return f"fin_idle_timeout={seconds}"


def same_protocol(protocol: str, *, v6: bool = False) -> tuple[str, str]:
    """The learned flow matches the family and protocol (`tcp`, `udp`, `sctp`)."""
    return ("eth_type=0x86dd" if v6 else "eth_type=0x800", f"nw_proto={_NUMBERS[protocol]}")


def same_src_port(protocol: str) -> str:
    """Match the source port of the packet that is learned from."""
    return f"OXM_OF_{protocol.upper()}_SRC[]"


def same_dst_port(protocol: str) -> str:
    """Match the destination port of the packet that is learned from."""
    return f"OXM_OF_{protocol.upper()}_DST[]"


def same_src(*, v6: bool = False) -> str:
    """Match the source address of the packet that is learned from."""
    return "NXM_NX_IPV6_SRC[]" if v6 else "NXM_OF_IP_SRC[]"


def same_dst(*, v6: bool = False) -> str:
    """Match the destination address of the packet that is learned from."""
    return "NXM_NX_IPV6_DST[]" if v6 else "NXM_OF_IP_DST[]"


def learned_copy(field: Field, to: Field | None = None) -> str:
    """The learned flow loads what the field holds now, into the same or another one."""
    return f"load:{field.nxm}->{(to or field).nxm}"


def learned_load(mark: Mark) -> str:
    """The learned flow loads the mark."""
    return f"load:{mark.value:#x}->{mark.field.nxm}"
