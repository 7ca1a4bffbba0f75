"""The configuration of FRR for sessions with routers, as trees of lines in the form in which FRR prints them.

The lines that a daemon prints are compared with the wanted ones, and the difference becomes commands: what is already there is not touched,
by whatever it was written. Lines are made of addresses, numbers and names alone, and of the password, which
`antrea.outside.frr.vty.checked` keeps in one line.
Source: FRR 10.3 bgpd/bgp_vty.c bgp_config_write, bfdd/bfdd_cli.c
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from antrea.facts.family import is_ipv6
from antrea.host.bgp import BfdTimers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from antrea.host.bgp import BfdOnlySession, BgpNeighbor, BgpPrefix, BgpSpeaker

Context = tuple[str, ...]
"""Lines that lead to a place of the configuration: ("router bgp 64512", "address-family ipv4 unicast")."""
Tree = dict[Context, list[str]]
"""Lines by their place, in the order in which they are to be written."""
Change = tuple[Context, str]
"""A command and its place."""

IMPORT, EXPORT = "antrea-import", "antrea-export"
"""Route maps: no route of a router is taken, and all of the networks are sent; others begin with these names."""
LISTS: Final = {False: ("ip prefix-list", "ip", 32), True: ("ipv6 prefix-list", "ipv6", 128)}
"""Commands that make a list of networks and match it, and the length of an address, by family."""
NAME = "antrea-"
RETRY_MINUTES: Final = 5
"""After which a session is tried again that ended because a router sent too many routes."""
FAMILIES: Final = {False: "address-family ipv4 unicast", True: "address-family ipv6 unicast"}
DEFAULT_PORT, DEFAULT_RESTART_TIME = 179, 120
WELL_KNOWN: Final = {
    (65535, 0): "graceful-shutdown",
    (65535, 666): "blackhole",
    (65535, 65281): "no-export",
    (65535, 65282): "no-advertise",
    (65535, 65283): "local-AS",
    (65535, 65284): "no-peer",
}
"""Communities that FRR prints by name (FRR 10.3 bgpd/bgp_community.c community_gettoken)."""
DEFAULT_TIMERS: Final = BfdTimers()
MAX_TTL: Final = 255
_CLOSING = ("!", "exit", "end", "exit-address-family")
_OPENING = {
    0: ("router bgp ", "route-map ", "bfd", "ip prefix-list ", "ipv6 prefix-list "),
    1: ("address-family ", "profile ", "peer "),
}
"""Beginnings of lines that open a place, by its depth."""
_OURS = (
    "router bgp ",
    f"route-map {IMPORT}",
    f"route-map {EXPORT}",
    "bfd",
    *(f"{command} {NAME}" for command, _, _ in LISTS.values()),
)


def bgp_tree(
    speaker: BgpSpeaker | None, neighbors: Iterable[BgpNeighbor], prefixes: Iterable[BgpPrefix]
) -> Tree:
    """Return the configuration of bgpd; empty without a speaker."""
    if speaker is None:
        return {}
    router: Context = (f"router bgp {speaker.asn}",)
    known = tuple(neighbors)
    tree: Tree = {
        **{(line,): [] for neighbor in known for line in _list_lines(neighbor)},
        (f"route-map {IMPORT} deny 10",): [],
        **dict(place for neighbor in known for place in _maps(neighbor)),
        router: [*_speaker_lines(speaker)],
        (*router, FAMILIES[False]): [],
        (*router, FAMILIES[True]): [],
    }
    for prefix in prefixes:
        tree[*router, FAMILIES[is_ipv6(prefix.prefix)]].append(f"network {prefix.prefix}")
    for neighbor in known:
        tree[router] += _neighbor_lines(speaker, neighbor)
        name = f"neighbor {neighbor.address}"
        # a neighbor is contacted once it has a family: after all else is there
        tree[*router, FAMILIES[is_ipv6(neighbor.address)]] += [
            *_maximum(neighbor),
            f"{name} route-map {import_name(neighbor)} in",
            f"{name} route-map {export_name(neighbor)} out",
            f"{name} activate",
        ]
    return {context: lines for context, lines in tree.items() if lines or not _is_family(context)}


def _is_family(context: Context) -> bool:
    """Whether it is the place of an address family, which FRR prints while it has lines."""
    return context[-1] in FAMILIES.values()


def _speaker_lines(speaker: BgpSpeaker) -> Iterator[str]:
    yield f"bgp router-id {speaker.router_id}"
    yield "no bgp default ipv4-unicast"
    yield "no bgp network import-check"
    if speaker.confederation:
        yield f"bgp confederation identifier {speaker.confederation}"
        for member in speaker.members:
            yield f"bgp confederation peers {member}"
    if speaker.restart_time != DEFAULT_RESTART_TIME:
        yield f"bgp graceful-restart restart-time {speaker.restart_time}"
    yield "bgp graceful-restart preserve-fw-state"


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _filters(neighbor: BgpNeighbor) -> tuple[list[str], list[str]]:
    """Return what the neighbor is sent and what is taken from it, as the ends of lines of lists of networks."""
    length = LISTS[is_ipv6(neighbor.address)][2]
    sent = [_within(network, length) for network in neighbor.networks or ()]
    imports = neighbor.imports
    taken = [_within(network, length) for network in imports.networks] if imports else []
    if imports and imports.default_route:
        taken.append("permit ::/0" if is_ipv6(neighbor.address) else "permit 0.0.0.0/0")
    return sent, taken


def _within(network: str, length: int) -> str:
    return f"permit {network}" + (f" le {length}" if not network.endswith(f"/{length}") else "")


def _list_lines(neighbor: BgpNeighbor) -> Iterator[str]:
    command = LISTS[is_ipv6(neighbor.address)][0]
    for filtered in _filters(neighbor):
        for number, end in enumerate(filtered):
            yield f"{command} {NAME}{_digest(filtered)} seq {5 * number + 5} {end}"


def _maps(neighbor: BgpNeighbor) -> Iterator[tuple[Context, list[str]]]:
    """Yield the route maps of a neighbor: one whose filter lets nothing pass denies all."""
    sent, taken = _filters(neighbor)
    lines = [*_export_lines(neighbor)]
    does = "deny" if neighbor.networks is not None and not sent else "permit"
    yield (f"route-map {export_name(neighbor)} {does} 10",), lines if does == "permit" else []
    if taken:
        yield (f"route-map {import_name(neighbor)} permit 10",), [_match(neighbor, taken)]


def _match(neighbor: BgpNeighbor, filtered: list[str]) -> str:
    return f"match {LISTS[is_ipv6(neighbor.address)][1]} address prefix-list {NAME}{_digest(filtered)}"


def export_name(neighbor: BgpNeighbor) -> str:
    """Return the name of the route map of what the neighbor is sent: neighbors with the same attributes share one."""
    if neighbor.networks is not None and not _filters(neighbor)[0]:
        return f"{EXPORT}-nothing"
    lines = [*_export_lines(neighbor)]
    return f"{EXPORT}-{_digest(lines)}" if lines else EXPORT


def import_name(neighbor: BgpNeighbor) -> str:
    """Return the name of the route map of what is taken from the neighbor."""
    taken = _filters(neighbor)[1]
    return f"{IMPORT}-{_digest(taken)}" if taken else IMPORT


def _maximum(neighbor: BgpNeighbor) -> Iterator[str]:
    if neighbor.imports is not None:
        yield f"neighbor {neighbor.address} maximum-prefix {neighbor.imports.maximum} restart {RETRY_MINUTES}"


def _export_lines(neighbor: BgpNeighbor) -> Iterator[str]:
    if sent := _filters(neighbor)[0]:
        yield _match(neighbor, sent)
    if neighbor.local_preference is not None:
        yield f"set local-preference {neighbor.local_preference}"
    if neighbor.communities:
        names = (WELL_KNOWN.get(pair, f"{pair[0]}:{pair[1]}") for pair in neighbor.communities)
        yield f"set community {' '.join(names)}"


def _neighbor_lines(speaker: BgpSpeaker, neighbor: BgpNeighbor) -> Iterator[str]:
    name = f"neighbor {neighbor.address}"
    yield f"{name} remote-as {neighbor.asn}"
    if neighbor.port != DEFAULT_PORT:
        yield f"{name} port {neighbor.port}"
    if neighbor.password.text:
        yield f"{name} password {neighbor.password.text}"
    if neighbor.ttl > 1 and neighbor.asn != speaker.asn:
        yield f"{name} ebgp-multihop {neighbor.ttl}"
    yield f"{name} timers {neighbor.keepalive} {neighbor.hold}"
    yield f"{name} timers connect {neighbor.connect_retry}"
    yield f"{name} graceful-restart{'' if neighbor.graceful_restart else '-disable'}"
    if neighbor.bfd is not None:
        yield f"{name} bfd"
        yield f"{name} bfd profile {profile_name(neighbor.bfd)}"


def bfd_tree(neighbors: Iterable[BgpNeighbor], sessions: Iterable[BfdOnlySession]) -> Tree:
    """Return the configuration of bfdd; empty if nothing is watched."""
    tree: Tree = {}
    for timers in dict.fromkeys(neighbor.bfd for neighbor in neighbors if neighbor.bfd):
        tree["bfd", f"profile {profile_name(timers)}"] = [*_timer_lines(timers)]
    for session in sessions:
        several = f" multihop local-address {session.local}" if session.local else ""
        lines = [*_timer_lines(session.timers)]
        if session.local:
            lines.append(f"minimum-ttl {max(1, MAX_TTL + 1 - session.hops)}")
        if session.shutdown:
            lines.append("shutdown")
        tree["bfd", f"peer {session.address}{several}"] = lines
    return {("bfd",): [], **tree} if tree else {}


def profile_name(timers: BfdTimers) -> str:
    """Return the name of the profile with these timers."""
    return f"antrea-{timers.transmit}-{timers.receive}-{timers.multiplier}"


def _timer_lines(timers: BfdTimers) -> Iterator[str]:
    if timers.multiplier != DEFAULT_TIMERS.multiplier:
        yield f"detect-multiplier {timers.multiplier}"
    if timers.receive != DEFAULT_TIMERS.receive:
        yield f"receive-interval {timers.receive}"
    if timers.transmit != DEFAULT_TIMERS.transmit:
        yield f"transmit-interval {timers.transmit}"


def parse(text: str) -> Tree:
    """Parse what `show running-config` prints, as far as it is of the kinds that `bgp_tree` and `bfd_tree` write."""
    tree: Tree = {}
    path: list[tuple[int, str]] = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("!") or line in _CLOSING:
            continue
        indent = len(raw) - len(raw.lstrip())
        while path and path[-1][0] >= indent:
            path.pop()
        above: Context = tuple(opened for _, opened in path)
        if line.startswith(_OPENING.get(len(path), ("\0",))):
            path.append((indent, line))
            if (*above, line)[0].startswith(_OURS):
                tree.setdefault((*above, line), [])
        elif above in tree:
            tree[above] += _single(line)
    return tree


def _single(line: str) -> list[str]:
    """Split the one line that names several things."""
    head, statement, members = line.partition("bgp confederation peers ")
    if statement and not head:
        return [f"{statement}{member}" for member in members.split()]
    return [line]


def changes(now: Tree, wanted: Tree) -> list[Change]:
    """Return the commands that make `wanted` of `now`, in order: what is not wanted goes first.

    A session is shut down before it is removed, since a router keeps the routes of one that merely ends (RFC 8538).
    """
    return [*_removals(now, wanted), *_additions(now, wanted)]


def _removals(now: Tree, wanted: Tree) -> Iterator[Change]:
    gone = [context for context in now if context not in wanted]
    for context, lines in now.items():
        if context in wanted:
            yield from _line_removals(context, lines, wanted[context])
    # places of other speakers go before the maps that they use
    for context in sorted(gone, key=lambda place: not place[0].startswith("router ")):
        if context[:-1] in gone:
            continue
        if _is_family(context):
            yield from _line_removals(context, now[context], wanted[context[:-1]])
        else:
            if context[-1].startswith("router "):
                yield context, "bgp shutdown"
            yield context[:-1], f"no {context[-1]}"


def _line_removals(context: Context, now: Sequence[str], wanted: Sequence[str]) -> Iterator[Change]:
    neighbors = {tokens[1] for tokens in map(str.split, wanted) if tokens[0] == "neighbor"}
    replaced = {slot(line) for line in wanted}
    ended: set[str] = set()
    for line in now:
        tokens = line.split()
        if line in wanted or slot(line) in replaced:
            continue
        if tokens[0] == "neighbor" and tokens[1] not in neighbors:
            # in a family it goes with the session
            if tokens[1] not in ended and len(context) == 1:
                yield context, f"neighbor {tokens[1]} shutdown"
                yield context, f"no neighbor {tokens[1]}"
            ended.add(tokens[1])
        else:
            yield context, line.removeprefix("no ") if line.startswith("no ") else f"no {line}"


def _additions(now: Tree, wanted: Tree) -> Iterator[Change]:
    for context, lines in wanted.items():
        if context not in now and not lines:
            yield context[:-1], context[-1]
        known = set(now.get(context, ()))
        for line in lines:
            if line not in known:
                yield context, line


def slot(line: str) -> str:
    """Return what a line sets: another line with the same slot takes its place."""
    tokens = line.removeprefix("no ").split()
    if tokens[0] == "neighbor" and len(tokens) > 2:
        if tokens[2] == "route-map":
            return " ".join((*tokens[:3], tokens[-1]))
        if tokens[2].startswith("graceful-restart"):
            return f"neighbor {tokens[1]} graceful-restart"
        is_longer = tokens[2:4] in (["timers", "connect"], ["bfd", "profile"])
        return " ".join(tokens[: 4 if is_longer else 3])
    if line.startswith("bgp confederation peers"):
        return line
    if tokens[0] == "bgp":
        return (
            " ".join(tokens[:3])
            if tokens[1] in ("confederation", "graceful-restart")
            else " ".join(tokens[:2])
        )
    return " ".join(tokens[:2]) if tokens[0] == "network" else tokens[0]
