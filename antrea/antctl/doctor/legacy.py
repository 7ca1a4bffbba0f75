"""Rules of iptables-legacy, which nft does not see, as chains like those that nft lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.antctl.doctor.state import Chain

if TYPE_CHECKING:
    from collections.abc import Mapping

HOOKS = {"INPUT": "input", "FORWARD": "forward", "OUTPUT": "output"}
WAYS = {"-i": "iifname", "-o": "oifname"}
VERDICTS = {"ACCEPT": "accept", "DROP": "drop", "REJECT": "reject"}


def chains_of(saved: str, family: str, tool: str) -> tuple[Chain, ...]:
    """The chains that `iptables-save` printed; `tool` is the command that changes them, such as iptables-legacy."""
    table = ""
    heads: dict[tuple[str, str], str] = {}
    rules: dict[tuple[str, str], list[tuple[Mapping[str, Any], ...]]] = {}
    for line in saved.splitlines():
        words = line.split()
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":"):
            heads[table, words[0][1:]] = words[1].lower()
        elif line.startswith("-A "):
            rules.setdefault((table, words[1]), []).append(_rule(words[2:]))
    return tuple(
        Chain(
            *(family, place, name, HOOKS.get(name, "") if place == "filter" else ""),
            policy=policy.strip("-"),
            rules=tuple(rules.get((place, name), ())),
            tool=tool,
        )
        for (place, name), policy in heads.items()
    )


def _rule(words: list[str]) -> tuple[Mapping[str, Any], ...]:
    """The expressions of a rule: interfaces by name, whatever else it asks as one condition, and its verdict."""
    found: list[Mapping[str, Any]] = []
    target = ""
    if "-j" in words or "-g" in words:
        place = next(place for place, word in enumerate(words) if word in ("-j", "-g"))
        target = words[place + 1]
        words = words[:place]
    while words:
        if words[0] in WAYS and len(words) > 1:
            left = {"meta": {"key": WAYS[words[0]]}}
            found.append({"match": {"op": "==", "left": left, "right": words[1]}})
            words = words[2:]
        else:
            # such as `-p tcp --dport 25`, and `! -i eth0` too: what it means is nothing to us
            found.append({"match": {"condition": " ".join(words)}})
            words = []
    if target in VERDICTS:
        found.append({VERDICTS[target]: None})
    elif target:
        found.append({"jump": {"target": target}})
    return tuple(found)
