"""`antctl kube-proxy node`, in an agent's container: what kube-proxy has on this Node, and its removal."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from antrea.antctl.doctor.checks import OUR_TABLES
from antrea.antctl.doctor.gather import Host, service_trouble
from antrea.antctl.doctor.packet_filter import FAMILIES
from antrea.antctl.doctor.program import output
from antrea.antctl.failure import Failure
from antrea.antctl.kube_proxy import ipvs
from antrea.antctl.kube_proxy.ruleset import TABLE, commands, is_complete, leftover
from antrea.antctl.mode import AGENT
from antrea.antctl.request import ask
from antrea.errors import Invalid, Unavailable
from antrea.features.proxy.pipeline import VIRTUAL_IPS
from antrea.openflow.fields import Zone
from antrea.openflow.tracked_connection import tracked_connections
from antrea.outside.netlink import kept_route
from antrea.outside.netlink.conntrack import OPEN_STATES
from antrea.outside.netlink.held_address import held_addresses
from antrea.outside.netlink.iproute2 import run_nft
from antrea.outside.netlink.listening_port import listening_ports
from antrea.outside.nftables.dump import tables
from antrea.outside.nftables.listing import ListedTable, Row, lead_rows
from antrea.outside.vswitch.conntrack import Conntrack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from antrea.antctl.main import Target
    from antrea.outside.netlink.ipvs_connection import Ends
    from antrea.outside.nftables.listing import LeadRow

PROCESS = "kube-proxy"
LISTING_TIMEOUT: Final = 60.0
"""For the listing of one table."""
MAX_LISTING: Final = 256 << 20
"""Maximum size of the listing of one table in JSON: 10,000 Services of kube-proxy in mode iptables are 100 MB."""


def callback(clean: bool, keep: bool) -> None:
    """Print one JSON object."""
    target: Target = click.get_current_context().obj
    if target.mode is not AGENT:
        raise Failure("it looks at the Node of an agent: run it in an agent's container")
    rows = ask(target.find(), "/config", {})
    config = {row["key"]: row["value"] for row in rows}
    host = Host(Path(config.get("hostProcPathPrefix", "/host")) / "proc")
    gateway = str(config.get("hostGateway", "antrea-gw0"))
    try:
        ended = remove(host, gateway) if clean else 0
        if keep:
            keep_routes(gateway, Path(str(config.get("ovsRunDir", "/var/run/openvswitch"))))
        click.echo(json.dumps({**read_state(host, config, os.environ), "endedConnections": ended}))
    except (OSError, ValueError, subprocess.SubprocessError, Invalid, Unavailable) as error:
        raise Failure(f"the Node cannot be looked at: {_reason_of(error)}") from error


def read_state(host: Host, config: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Read the state that kube-proxy left, and whether Services are served. Raises OSError, SubprocessError, ValueError, Invalid, Unavailable."""
    rows = _listed()
    rules = leftover(rows)
    return {
        "runs": PROCESS in host.processes(),
        "tables": [" ".join(place) for place in rules.tables],
        "chains": len(rules.chains),
        "complete": is_complete(rows, _families()),
        "held": sorted({f"{' '.join(jump.place)} {jump.chain} -> {jump.target}" for jump in rules.held}),
        "legacy": _legacy_tables(),
        **ipvs.counts(ipvs.left()),
        "heldAddresses": len(held_addresses()),
        "keptRoutes": len(kept_route.kept_addresses()),
        "listening": sorted(listening_ports()),
        "proxyAll": bool(config.get("antreaProxy.proxyAll")),
        "trouble": service_trouble(environ),
    }


def remove(host: Host, gateway: str) -> int:
    """Remove all that is kube-proxy's of IPVS, and in nftables, in one transaction, while it does not run.

    How many connections end, since there are too many. Raises as `look`, Failure.
    """
    if PROCESS in host.processes():
        raise Failure("kube-proxy runs on this Node and would make its rules again")
    ipvs_state = ipvs.left()
    ended = ipvs.hand_over(ipvs_state)
    if script := commands(leftover(_listed())):
        run_nft(script)
    ipvs.remove_sets(ipvs_state)
    if kept_route.kept_addresses():
        kept_route.give_up(gateway)
    return ended


def keep_routes(gateway: str, switch: Path) -> None:
    """Keep routes of connections to Services before kube-proxy makes their addresses the Node's own. Raises as `read_state`, Unavailable."""
    tracking = Conntrack(switch)
    texts = [asyncio.run(tracking.dump(int(zone))) for zone in (Zone.CT_ZONE, Zone.CT_ZONE_V6)]
    kept_route.keep(gateway, VIRTUAL_IPS, switched(texts))


def switched(dumps: Iterable[str]) -> Iterator[Ends]:
    """Open connections that the switch translates, as their first packets were."""
    for dump in dumps:
        for connection in tracked_connections(dump):
            protocol, source, source_port, server, port, _ = connection.key
            is_open = connection.state in OPEN_STATES or not connection.state
            if is_open and connection.port and (server, port) != (connection.destination, connection.port):
                yield protocol, source, source_port, connection.destination, connection.port


def _listed() -> list[LeadRow]:
    """List the names of kube-proxy's own tables without their rules: they are removed whole, and the rules of 10,000 Services are 100 MB of JSON."""
    places = [(family, name) for family in FAMILIES for name in sorted(tables(family))]
    rows: list[LeadRow] = []
    for family, table in places:
        if table == TABLE:
            rows.append(Row(ListedTable(family, table)))
        elif table not in OUR_TABLES:
            rows += lead_rows(
                output("nft", "-j", "list", "table", family, table, seconds=LISTING_TIMEOUT, most=MAX_LISTING)
            )
    return rows


def _families() -> frozenset[str]:
    """In which kube-proxy serves, however many the cluster has (v1.34 cmd/kube-proxy/app, platformCheckSupported)."""
    return frozenset(("ip", "ip6") if Path("/proc/thread-self/net/if_inet6").exists() else ("ip",))


def _legacy_tables() -> list[str]:
    """Tables that iptables-legacy has in the kernel, by family."""
    tables = []
    for family in ("ip", "ip6"):
        names = Path(f"/proc/thread-self/net/{family}_tables_names")
        if names.exists():
            tables += [f"{family} {name}" for name in names.read_text().split()]
    return tables


def _reason_of(why: Exception) -> str:
    said = (why.stderr or "").strip() if isinstance(why, subprocess.CalledProcessError) else ""
    return said or f"{type(why).__name__}: {why}"
