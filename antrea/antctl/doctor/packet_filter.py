"""The packet filter of the Node, of which only what the checks ask for is read.

Beside 10,000 Services of kube-proxy the whole ruleset is 100 MB of JSON, for which nft takes 1.9 GB of memory and 16 s.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from antrea.antctl.doctor.checks import OUR_TABLES, PROXY_CHAINS, PROXY_TABLE
from antrea.antctl.doctor.program import output
from antrea.antctl.doctor.state import Chain
from antrea.host.invalid_drop import PLACES
from antrea.outside.nftables.dump import ChainHead, chain_heads
from antrea.outside.nftables.listing import statements

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

HOOKS = {"INPUT": "input", "FORWARD": "forward", "OUTPUT": "output"}
WAYS = {"-i": "iifname", "-o": "oifname"}
VERDICTS = {"ACCEPT": "accept", "DROP": "drop", "REJECT": "reject"}


def chains_of(saved: str, family: str, tool: str) -> tuple[Chain, ...]:
    """Return the chains of iptables-legacy, which nft does not list, as `iptables-save` printed them.

    `tool` is the command that changes them, such as iptables-legacy.
    """
    table = ""
    heads: dict[tuple[str, str], str] = {}
    rules: dict[tuple[str, str], list[tuple[Mapping[str, Any], ...]]] = {}
    for line in saved.splitlines():
        fields = line.split()
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":"):
            heads[table, fields[0][1:]] = fields[1].lower()
        elif line.startswith("-A "):
            rules.setdefault((table, fields[1]), []).append(_rule(fields[2:]))
    return tuple(
        Chain(
            *(family, place, name, HOOKS.get(name, "") if place == "filter" else ""),
            policy=policy.strip("-"),
            rules=tuple(rules.get((place, name), ())),
            tool=tool,
        )
        for (place, name), policy in heads.items()
    )


def _rule(arguments: list[str]) -> tuple[Mapping[str, Any], ...]:
    """The expressions of a rule: interfaces by name, whatever else it asks as one condition, and its verdict."""
    expressions: list[Mapping[str, Any]] = []
    target = ""
    if "-j" in arguments or "-g" in arguments:
        place = next(place for place, argument in enumerate(arguments) if argument in ("-j", "-g"))
        target = arguments[place + 1]
        arguments = arguments[:place]
    while arguments:
        if arguments[0] in WAYS and len(arguments) > 1:
            left = {"meta": {"key": WAYS[arguments[0]]}}
            expressions.append({"match": {"op": "==", "left": left, "right": arguments[1]}})
            arguments = arguments[2:]
        else:
            # such as `-p tcp --dport 25`, and `! -i eth0` too: what it means is nothing to us
            expressions.append({"match": {"condition": " ".join(arguments)}})
            arguments = []
    if target in VERDICTS:
        expressions.append({VERDICTS[target]: None})
    elif target:
        expressions.append({"jump": {"target": target}})
    return tuple(expressions)


FAMILIES: Final = ("ip", "ip6", "inet")
"""Address families of nftables whose chains see packets of Pods."""
MAX_CHAINS: Final = 1000
SECONDS: Final = 20.0
"""For all rules: nft reads the maps of a chain's table, too, and takes 3 s for one of kube-proxy with 10,000 Services."""
MAX_RULES: Final = 4 << 20
"""Characters of the rules of one chain, in JSON."""


def chains(*, drops_invalid: bool = False) -> tuple[Chain, ...]:
    """Base chains of this network namespace and those of kube-proxy, without those of single Services.

    Rules are there of chains of other programs that forwarded packets pass, and with `drops_invalid` of those where kube-proxy may
    drop invalid packets. Raises Unavailable, OSError, subprocess.SubprocessError, ValueError, Invalid.
    """
    heads = [head for family in FAMILIES for head in chain_heads(family, is_asked_for)]
    if len(heads) > MAX_CHAINS:
        raise ValueError(f"there are more than {MAX_CHAINS} chains")
    end = time.monotonic() + SECONDS
    base_chains = [
        Chain(*head, rules=_rules(head, end) if _has_to_be_read(head, drops_invalid) else ())
        for head in heads
    ]
    return (*base_chains, *_legacy("ip", "iptables-legacy"), *_legacy("ip6", "ip6tables-legacy"))


def is_asked_for(head: ChainHead) -> bool:
    """Names of kube-proxy's chains of a Service or an Endpoint have a slash."""
    of_kube_proxy = head.name in PROXY_CHAINS or (head.table == PROXY_TABLE and "/" not in head.name)
    return bool(head.hook) or of_kube_proxy


def _has_to_be_read(head: ChainHead, drops_invalid: bool) -> bool:
    if (head.table, head.name) in PLACES:
        return drops_invalid
    return head.hook == "forward" and head.table not in (*OUR_TABLES, PROXY_TABLE)


def _rules(head: ChainHead, end: float) -> tuple[tuple[Mapping[str, Any], ...], ...]:
    """Expressions of each."""
    command = ("nft", "-j", "list", "chain", head.family, head.table, head.name)
    listed = output(*command, seconds=max(0.0, end - time.monotonic()), most=MAX_RULES)
    return tuple(statements(listed))


def _legacy(family: str, tool: str) -> tuple[Chain, ...]:
    """Return the chains of iptables-legacy if the kernel has any: listing them would otherwise create them."""
    used = Path(f"/proc/thread-self/net/{family}_tables_names")
    if not used.exists() or not used.read_text().split():
        return ()
    return chains_of(output(f"{tool}-save"), family, tool)
