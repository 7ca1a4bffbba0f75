"""External addresses of Services that are an address of a Node, as a take-over names them: kube-proxy serves them at every port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.apis import core
from antrea.config.agent import AgentConfig
from antrea.config.load import parse
from antrea.decoding import decode_tree
from antrea.errors import Invalid
from antrea.facts.service import ListeningPorts
from antrea.features.framework.address import canonical
from antrea.features.proxy.own_address import needed_ports
from antrea.features.proxy.service import service_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from antrea.facts.service import Service


def node_address_notes(
    services: Iterable[Mapping[str, Any]],
    nodes: Iterable[Mapping[str, Any]],
    listening: Mapping[str, Sequence[Sequence[Any]]],
    agent_conf: str,
) -> Iterator[str]:
    """A sentence for each port of such an address; `listening` has protocol, address and port by Node."""
    try:
        config = parse(AgentConfig, agent_conf).config
    except Invalid:
        return  # what blocks the take-over says so
    rows = [row for service in services if (row := _row(service))]
    holders = {
        ip: node["metadata"]["name"]
        for node in nodes
        for address in node.get("status", {}).get("addresses") or ()
        if (ip := canonical(str(address.get("address", ""))))
    }
    taken = {
        (protocol, number): row.key
        for row in rows
        for (protocol, _), number in zip(row.ports, row.node_ports, strict=False)
        if number
    }
    for row in rows:
        for ip in row.external_ips:
            for protocol, port in row.ports if ip in holders else ():
                place = f"Note: Service {row.key}: {ip}, port {port}/{protocol}, is an address of Node {holders[ip]}"
                needs = _needs(row, config, taken, protocol, port) or _listens(
                    listening.get(holders[ip], ()), ip, protocol, port
                )
                if not config.antrea_proxy.serve_node_external_ips:
                    yield f"{place}: Antrea does not serve it, as antreaProxy.serveNodeExternalIPs is false"
                elif needs:
                    yield f"{place}: Antrea does not serve it, as the port is for {needs}"
                else:
                    yield f"{place}: Antrea serves it at that Node alone"


def _row(service: Mapping[str, Any]) -> Service | None:
    try:
        return service_row(decode_tree(service, core.Service, "Service"))
    except Invalid:
        return None  # the agents name it


def _needs(
    row: Service, config: AgentConfig, taken: Mapping[tuple[str, int], str], protocol: str, port: int
) -> str:
    if purpose := needed_ports(config).get((protocol, port)):
        return purpose
    other = taken.get((protocol, port), row.key)
    return f"the NodePort of Service {other}" if other != row.key else ""


def _listens(rows: Iterable[Sequence[Any]], ip: str, protocol: str, port: int) -> str:
    ports = ListeningPorts(frozenset((str(kind), str(at), int(number)) for kind, at, number in rows))
    return "a program of the Node, which listens there" if ports.takes(ip, protocol, port) else ""
