"""The check of kube-proxy's rule that drops invalid packets, which the agent names while Services have direct server return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.antctl.doctor.state import FindingText
from antrea.host.invalid_drop import CONDITION, LIBERAL, PLACES, DropRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.antctl.doctor.state import NodeState


def invalid_packets(node: NodeState) -> Iterator[FindingText]:
    """While kube-proxy runs, its configuration has to change, or it makes the rule again."""
    if message := (node.conditions or {}).get(CONDITION):
        rules = {
            DropRule(chain.family, chain.table, chain.name, chain.tool)
            for chain in node.chains or ()
            if (chain.table, chain.name) in PLACES and any(map(_drops_invalid, chain.rules))
        }
        repair = " && ".join(rule.removal for rule in sorted(rules))
        yield FindingText("warning", message, LIBERAL if "kube-proxy" in (node.processes or ()) else repair)


def _drops_invalid(rule: tuple[Mapping[str, Any], ...]) -> bool:
    """nft does not print the state that a rule of iptables asks for: kube-proxy's chain has no other rule that drops."""
    return bool(rule) and "drop" in rule[-1] and any(map(_asks_for_invalid, rule))


def _asks_for_invalid(part: Mapping[str, Any]) -> bool:
    if part.get("xt") == {"type": "match", "name": "conntrack"}:
        return True
    match = part.get("match", {})
    states = match.get("right")
    return "--ctstate INVALID" in str(match.get("condition", "")) or (
        match.get("left") == {"ct": {"key": "state"}}
        and isinstance(states, str | list)
        and "invalid" in states
    )
