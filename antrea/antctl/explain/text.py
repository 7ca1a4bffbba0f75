"""The table of `antctl explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.shown import one_line
from antrea.explain.service import Endpoint
from antrea.features.framework.command import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from antrea.antctl.explain.source import Source
    from antrea.antctl.explain.switch import SwitchVerdict
    from antrea.explain.answer import Answer, Through
    from antrea.explain.steering import SteeredPacket
    from antrea.explain.verdict import Half


def text(answer: Answer, says: Sequence[SwitchVerdict], source: Source) -> str:
    """Lines for people, with the verdict first."""
    return "".join(f"{line}\n" for line in _lines(answer, says, source))


def _lines(answer: Answer, says: Sequence[SwitchVerdict], source: Source) -> Iterator[str]:
    packet = answer.packet
    ends = (_end(packet.source, packet.source_ip), _end(packet.destination, packet.destination_ip))
    yield f"{answer.verdict}: {packet.what} from {ends[0]} to {ends[1]}"
    yield f"Because: {answer.sentence}"
    if packet.names_of:
        names = ", ".join(map(one_line, packet.names)) or "none"
        yield f"Names: {names}, by DNS answers that the agent of Node {packet.names_of} has."
    if packet.own_names:
        names = ", ".join(map(one_line, packet.own_names))
        yield (
            f"Names of DNS servers that are not trusted: {names}; for rules that drop or reject alone"
            " (fqdnTrustedDNSServers)."
        )
    if answer.audit is not None:
        yield f"Audit: {answer.audit.verdict} if audited policies were enforced: {answer.audit.sentence}"
    yield ""
    if answer.through is not None:
        yield from _through(answer.through)
    yield from table(
        [_row(half) for half in (answer.egress, answer.ingress)], COLUMNS, ordered=False
    ).splitlines()
    others = [
        {"direction": half.direction, "rule": lost.rule.title, "why": lost.why}
        for half in (answer.egress, answer.ingress)
        for lost in half.lost
    ]
    if others:
        yield from ("", "Rules that match and do not decide:")
        yield from (f"- {other['rule']}: {other['why']}" for other in others)
    silent = [lost for half in (answer.egress, answer.ingress) for lost in half.silent]
    if silent:
        yield from ("", "Without effect:")
        yield from (f"- {lost.rule.title}: {lost.why}" for lost in silent)
    yield from _advertised(answer)
    yield from _way(answer)
    yield ""
    yield from _turning(answer)
    for verdict in says:
        yield ""
        yield from _switch(verdict)
    if source.lacks:
        yield from ("", "Not taken into account:", *(f"- {lack}" for lack in source.lacks))


def _advertised(answer: Answer) -> Iterator[str]:
    if answer.advertised:
        yield ""
        yield from (f"Routers: {one_line(sentence)}" for sentence in answer.advertised)


def _through(through: Through) -> Iterator[str]:
    """Among which Endpoints AntreaProxy chooses, and what becomes of the packet at each."""
    chosen = f"AntreaProxy chooses one of the {through.among} of Service {through.service}"
    if not through.endpoints:
        yield from (f"{chosen}: there is none.", "")
        return
    sticky = (
        "; a client stays with the first that it gets (sessionAffinity ClientIP)" if through.sticky else ""
    )
    yield f"{chosen}{sticky}:"
    rows = [
        {
            "endpoint": endpoint.endpoint,
            "address": str(Endpoint(endpoint.ip, endpoint.port)),
            "verdict": endpoint.verdict,
            "by": endpoint.sentence,
        }
        for endpoint in through.endpoints
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


def _turning(answer: Answer) -> Iterator[str]:
    """The change that would turn the verdict over."""
    other = "refuse" if answer.verdict == "Allow" else "allow"
    if not answer.changes:
        yield f"No change of policies would {other} it."
    elif len(answer.changes) == 1:
        yield f"The smallest change that would {other} it: {answer.changes[0]}"
    else:
        yield f"The smallest changes that together would {other} it:"
        yield from (f"- {change}" for change in answer.changes)


def _way(answer: Answer) -> Iterator[str]:
    """The path to another Node, and diversions."""
    if answer.path:
        yield from ("", f"Path: {answer.path}.")
    for at in answer.traffic_controls:
        yield from _steered(at)


def _steered(steered: SteeredPacket) -> Iterator[str]:
    """Before the switches: what they do with a packet that policies let pass."""
    does = "a copy goes to" if steered.action == "Mirror" else "it goes to"
    back = f", and comes back by {steered.returned}" if steered.returned else ""
    end = back or (", and does not come back" if steered.action == "Redirect" else "")
    way = "sent" if steered.direction == "Egress" else "received"
    yield ""
    yield f"TrafficControl {steered.traffic_control} of Pod {steered.pod}, {way} on Node {steered.node}: {does} {steered.target}{end}."
    if steered.missing:
        yield f"- Not realized: {steered.missing}"
    yield from (f"- Without effect: {lost}" for lost in steered.without_effect)


def _switch(verdict: SwitchVerdict) -> Iterator[str]:
    if verdict.agrees is None:
        yield f"Switch of Node {verdict.node} ({verdict.direction.lower()}): it could not be asked: {verdict.why}"
        return
    word = "does the same" if verdict.agrees else f"DOES OTHERWISE ({verdict.does})"
    yield f"Switch of Node {verdict.node} ({verdict.direction.lower()}): {word}, by these flows:"
    yield from (f"  {flow}" for flow in verdict.flows)
