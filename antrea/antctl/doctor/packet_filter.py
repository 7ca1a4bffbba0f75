"""The packet filter of the Node, of which only what the checks ask for is read.

Beside 10,000 Services of kube-proxy the whole ruleset is 100 MB of JSON, for which nft takes 1.9 GB of memory and 16 s.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antrea.antctl.doctor.checks import OUR_TABLES, PROXY_CHAINS, PROXY_TABLE
from antrea.antctl.doctor.legacy import chains_of
from antrea.antctl.doctor.program import output
from antrea.antctl.doctor.state import Chain
from antrea.host.invalid_drop import PLACES
from antrea.outside.nftables.dump import ChainHead, chain_heads
from antrea.outside.nftables.listing import statements

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

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
    found = [
        Chain(*head, rules=_rules(head, end) if _has_to_be_read(head, drops_invalid) else ())
        for head in heads
    ]
    return (*found, *_legacy("ip", "iptables-legacy"), *_legacy("ip6", "ip6tables-legacy"))


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
    words = ("nft", "-j", "list", "chain", head.family, head.table, head.name)
    listed = output(*words, seconds=max(0.0, end - time.monotonic()), most=MAX_RULES)
    return tuple(statements(listed))


def _legacy(family: str, tool: str) -> tuple[Chain, ...]:
    """Return the chains of iptables-legacy if the kernel has any: listing them would otherwise create them."""
    used = Path(f"/proc/thread-self/net/{family}_tables_names")
    if not used.exists() or not used.read_text().split():
        return ()
    return chains_of(output(f"{tool}-save"), family, tool)
