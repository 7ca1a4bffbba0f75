"""The table of `antctl explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.antctl.output import table
from antrea.apis.shown import one_line
from antrea.explain.service import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from antrea.antctl.explain.source import Source
    from antrea.antctl.explain.switch import SwitchVerdict
    from antrea.explain.answer import Answer, Through
    from antrea.explain.steering import SteeredPacket
    from antrea.explain.verdict import Half


def text(found: Answer, says: Sequence[SwitchVerdict], source: Source) -> str:
    """Lines for people, with the verdict first."""
    return "".join(f"{line}\n" for line in _lines(found, says, source))


def _lines(found: Answer, says: Sequence[SwitchVerdict], source: Source) -> Iterator[str]:
    packet = found.packet
    ends = (_end(packet.source, packet.source_ip), _end(packet.destination, packet.destination_ip))
    yield f"{found.verdict}: {packet.what} from {ends[0]} to {ends[1]}"
    yield f"Because: {found.sentence}"
    if packet.names_of:
        names = ", ".join(map(one_line, packet.names)) or "none"
        yield f"Names: {names}, by DNS answers that the agent of Node {packet.names_of} has."
    if packet.own_names:
        names = ", ".join(map(one_line, packet.own_names))
        yield (
            f"Names of DNS servers that are not trusted: {names}; for rules that drop or reject alone"
            " (fqdnTrustedDNSServers)."
        )
    if found.audit is not None:
        yield f"Audit: {found.audit.verdict} if audited policies were enforced: {found.audit.sentence}"
    yield ""
    if found.through is not None:
        yield from _through(found.through)
    yield from table(
        [_row(half) for half in (found.egress, found.ingress)], COLUMNS, ordered=False
    ).splitlines()
    others = [
        {"direction": half.direction, "rule": lost.rule.title, "why": lost.why}
        for half in (found.egress, found.ingress)
        for lost in half.lost
    ]
    if others:
        yield from ("", "Rules that match and do not decide:")
        yield from (f"- {one['rule']}: {one['why']}" for one in others)
    silent = [lost for half in (found.egress, found.ingress) for lost in half.silent]
    if silent:
        yield from ("", "Without effect:")
        yield from (f"- {lost.rule.title}: {lost.why}" for lost in silent)
    for at in found.traffic_controls:
        yield from _steered(at)
    yield ""
    yield from _turning(found)
    for one in says:
        yield ""
        yield from _switch(one)
    if source.lacks:
        yield from ("", "Not taken into account:", *(f"- {lack}" for lack in source.lacks))


def _through(found: Through) -> Iterator[str]:
    """Among which Endpoints AntreaProxy chooses, and what becomes of the packet at each."""
    chosen = f"AntreaProxy chooses one of the {found.among} of Service {found.service}"
    if not found.endpoints:
        yield from (f"{chosen}: there is none.", "")
        return
    sticky = "; a client stays with the first that it gets (sessionAffinity ClientIP)" if found.sticky else ""
    yield f"{chosen}{sticky}:"
    rows = [
        {
            "endpoint": one.endpoint,
            "address": str(Endpoint(one.ip, one.port)),
            "verdict": one.verdict,
            "by": one.sentence,
        }
        for one in found.endpoints
    ]
    yield from table(rows, ENDPOINT_COLUMNS, ordered=False).splitlines()
    yield ""


def _end(name: str, ip: str) -> str:
    return ip if name == ip else f"{name} ({ip})"


def _row(half: Half) -> dict[str, str]:
    return {
        "direction": half.direction,
        "pod": half.pod,
        "verdict": half.verdict,
        "by": half.sentence,
    }


ENDPOINT_COLUMNS = (
    ("ENDPOINT", lambda row: str(row["endpoint"])),
    ("ADDRESS", lambda row: str(row["address"])),
    ("VERDICT", lambda row: str(row["verdict"])),
    ("BECAUSE", lambda row: str(row["by"])),
)
COLUMNS = (
    ("DIRECTION", lambda row: str(row["direction"])),
    ("POD", lambda row: str(row["pod"])),
    ("VERDICT", lambda row: str(row["verdict"])),
    ("BECAUSE", lambda row: str(row["by"])),
)


def _turning(found: Answer) -> Iterator[str]:
    """The change that would turn the verdict over."""
    other = "refuse" if found.verdict == "Allow" else "allow"
    if not found.changes:
        yield f"No change of policies would {other} it."
    elif len(found.changes) == 1:
        yield f"The smallest change that would {other} it: {found.changes[0]}"
    else:
        yield f"The smallest changes that together would {other} it:"
        yield from (f"- {one}" for one in found.changes)


def _steered(one: SteeredPacket) -> Iterator[str]:
    """Before the switches: what they do with a packet that policies let pass."""
    does = "a copy goes to" if one.action == "Mirror" else "it goes to"
    back = f", and comes back by {one.returned}" if one.returned else ""
    end = back or (", and does not come back" if one.action == "Redirect" else "")
    way = "sent" if one.direction == "Egress" else "received"
    yield ""
    yield f"TrafficControl {one.traffic_control} of Pod {one.pod}, {way} on Node {one.node}: {does} {one.target}{end}."
    if one.missing:
        yield f"- Not realized: {one.missing}"
    yield from (f"- Without effect: {lost}" for lost in one.without_effect)


def _switch(one: SwitchVerdict) -> Iterator[str]:
    if one.agrees is None:
        yield f"Switch of Node {one.node} ({one.direction.lower()}): it could not be asked: {one.why}"
        return
    word = "does the same" if one.agrees else f"DOES OTHERWISE ({one.does})"
    yield f"Switch of Node {one.node} ({one.direction.lower()}): {word}, by these flows:"
    yield from (f"  {flow}" for flow in one.flows)
