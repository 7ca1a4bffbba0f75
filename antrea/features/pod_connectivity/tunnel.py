"""Tunnel port of Pod traffic between Nodes; bootstrap creates it, the engine keeps it.

parity: pkg/agent/agent.go setupDefaultTunnelInterface; no-flood is an addition: the port has no remote end of its own, so what
NORMAL floods would only be encapsulated to be dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.host.ovs_port import TYPE_KEY, Port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.node import Transport

TUNNEL_PORT = "antrea-tun0"
TUNNEL_OFPORT = 32768
"""# parity: pkg/agent/config/node_config.go DefaultTunOFPort"""


def tunnel_port(config: AgentConfig) -> Port:
    """Make the one port for all Nodes: flows set where a packet goes."""
    options = {"remote_ip": "flow", "key": "flow"}
    if config.tunnel_port and config.tunnel_port_number:
        options["dst_port"] = str(config.tunnel_port)
    if config.tunnel_csum:
        options["csum"] = "true"
    return Port(
        name=TUNNEL_PORT,
        type=config.tunnel_type,
        options=tuple(options.items()),
        external_ids=((TYPE_KEY, "tunnel"),),
        ofport_request=TUNNEL_OFPORT,
        no_flood=True,
    )


def tunnel_entry(facts: Facts, _transport: Transport) -> Iterator[Port]:
    """Yield the tunnel over the transport interface."""
    if (config := facts.get(AgentConfig)) is not None and config.has_tunnel:
        yield tunnel_port(config)
