"""`antctl get nodelatencystats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.features.framework.command import DataCommand, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.features.framework.command import Row


def latencies(answer: Any, _: Mapping[str, str]) -> list[Row]:
    """A row for each address that a Node probes: the round-trip time of its last answer, and the times of the last request and answer."""
    items = answer.get("items", [answer])
    return [
        {
            "from": item["metadata"]["name"],
            "to": peer.get("nodeName", ""),
            "address": target.get("targetIP", ""),
            "rtt": _milliseconds(target),
            "sent": target.get("lastSendTime") or "",
            "answered": target.get("lastRecvTime") or "",
        }
        for item in items
        for peer in item.get("peerNodeLatencyStats") or ()
        for target in peer.get("targetIPLatencyStats") or ()
    ]


def _milliseconds(target: Row) -> str:
    taken = target.get("lastMeasuredRTTNanoseconds", 0)
    return f"{taken / 1e6:.3f}ms" if target.get("lastRecvTime") else ""


COMMANDS = (
    DataCommand(
        "get",
        "nodelatencystats",
        "CR",
        "Print round-trip times between Nodes",
        "stats.antrea.io/v1alpha1/nodelatencystats",
        ("nls",),
        "Print the round-trip times from each Node, or from the named one, to the addresses of all others.",
        "  antctl get nodelatencystats\n  antctl get nodelatencystats node-1",
        "name",
        columns=tuple(
            (name, field(key))
            for name, key in (
                ("FROM", "from"),
                ("TO", "to"),
                ("ADDRESS", "address"),
                ("RTT", "rtt"),
                ("SENT", "sent"),
                ("ANSWERED", "answered"),
            )
        ),
        shape=latencies,
    ),
)
