"""Looks at the Node from the agent's container: its files, its kernel, its switch, its neighbours, and the API server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from antrea.antctl.doctor.checks import messages_of, overhead
from antrea.antctl.doctor.packet_filter import chains
from antrea.antctl.doctor.paths import has_tunnels, tunnel_type
from antrea.antctl.doctor.program import output
from antrea.antctl.doctor.refusal import refusal
from antrea.antctl.doctor.state import CniFile, FileSystem, NodeState, OvsInterface, PathSize, Peer
from antrea.antctl.failure import Failure
from antrea.antctl.request import ErrorResponse, ask, date
from antrea.apis.annotation import TRANSPORT_ADDRESSES
from antrea.config.tunnel import TUNNELS
from antrea.decoding import guarded
from antrea.errors import Invalid, Unavailable
from antrea.host.invalid_drop import CONDITION
from antrea.host.pod_cidr import gateway_ip
from antrea.outside.icmp.path import largest_sizes
from antrea.outside.kube.environment import own_namespace
from antrea.outside.netlink.reach import device_to, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from antrea.antctl.request import Server

F = TypeVar("F")
MAX_CONCURRENT = 100
"""Addresses that are asked at the same time."""
WRITTEN = ("/var/run/antrea", "/var/lib/antrea", "/var/log/antrea", "/etc/cni/net.d")
"""Folders of the Node in which the agent writes."""
FORWARDING = {False: "net.ipv4.ip_forward", True: "net.ipv6.conf.all.forwarding"}
"""Settings by whether it is IPv6."""
MAX_PATHS = 50
"""Addresses of other Nodes to which the size of packets is probed."""
CNI_SUFFIXES = (".conf", ".conflist", ".json")
"""Files that libcni reads."""


class Host:
    """Where the Node's own files are seen: `root` is its root folder, `proc` all its processes, `sys` its kernel."""

    def __init__(self, proc: Path, sys: Path = Path("/sys")) -> None:
        self.proc = proc
        self.sys = sys
        self.root = proc / "1/root"

    def cni_files(self) -> tuple[CniFile, ...]:
        """In the order in which the runtime reads them. Raises OSError."""
        paths = sorted((self.root / "etc/cni/net.d").iterdir())
        return tuple(CniFile(path.name, _plugins(path)) for path in paths if path.suffix in CNI_SUFFIXES)

    def processes(self) -> frozenset[str]:
        """Names of all. Raises OSError."""
        names = set()
        for place in self.proc.iterdir():
            if place.name.isdigit():
                try:
                    names.add((place / "comm").read_text().strip())
                except (FileNotFoundError, ProcessLookupError):
                    continue  # it ended meanwhile
        return frozenset(names)

    def mtus(self) -> dict[str, int]:
        """Return the MTU of every interface of the Node by its name. Raises OSError."""
        sizes = {}
        for place in (self.sys / "class/net").iterdir():
            try:
                sizes[place.name] = int((place / "mtu").read_text())
            except (FileNotFoundError, NotADirectoryError, OSError):
                continue  # it went meanwhile, or is none, such as bonding_masters
        return sizes

    def file_systems(self) -> tuple[FileSystem, ...]:
        """Return the file systems in which the agent writes. Raises OSError."""
        by_device: dict[int, FileSystem] = {}
        for path in WRITTEN:
            place = self.root / path.removeprefix("/")
            if place.exists():
                status = os.statvfs(place)
                files = status.f_favail if status.f_files else -1
                by_device.setdefault(
                    place.stat().st_dev, FileSystem(path, status.f_bavail * status.f_frsize, files)
                )
        return tuple(by_device.values())

    def forwarding(self, cidrs: Sequence[str]) -> dict[str, bool]:
        """Return whether the kernel forwards packets of each family, by the setting that the agent turns on. Raises OSError."""
        names = dict.fromkeys(FORWARDING[":" in cidr] for cidr in cidrs)
        paths = {name: self.proc / "sys" / name.replace(".", "/") for name in names}
        return {name: path.read_text().strip() != "0" for name, path in paths.items()}

    def missing_modules(self, needed: Sequence[str]) -> tuple[str, ...]:
        """Return the modules of `needed` that are neither loaded nor built in. Raises OSError."""
        release = os.uname().release
        built_in = self.root / f"lib/modules/{release}/modules.builtin"
        names = set()
        if built_in.exists():
            names = {Path(line).stem.replace("-", "_") for line in built_in.read_text().splitlines()}
        loaded = {place.name for place in (self.sys / "module").iterdir()}
        return tuple(name for name in needed if name not in names | loaded)


def _plugins(path: Path) -> tuple[str, ...]:
    """Return the plugins that a CNI configuration runs; none if the file is not a CNI configuration. Raises OSError."""
    try:
        tree = guarded(str(path), json.loads, path.read_bytes())
        return tuple(str(row.get("type", "")) for row in tree.get("plugins", [tree]))
    except (Invalid, AttributeError, TypeError):
        return ()


def needed_modules(config: Mapping[str, Any]) -> list[str]:
    """Return the kernel modules that this configuration needs."""
    modules = []
    if config.get("ovsDatapathType") != "netdev":
        modules = ["openvswitch", *((TUNNELS[tunnel_type(config)].module,) if has_tunnels(config) else ())]
    if str(config.get("trafficEncryptionMode", "none")).lower() == "wireguard":
        modules.append("wireguard")
    return modules


def ovs_interfaces(bridge: str) -> tuple[OvsInterface, ...]:
    """Interfaces of the bridge, with the errors that Open vSwitch records for them. Raises OSError, subprocess.SubprocessError, Invalid."""
    names = output("ovs-vsctl", "--timeout=5", "list-ifaces", bridge).split()
    arguments = ("--timeout=5", "--format=json", "--columns=name,error", "list", "interface")
    errors = guarded("output of ovs-vsctl", interface_errors, output("ovs-vsctl", *arguments))
    return tuple(OvsInterface(name, errors.get(name, "")) for name in sorted(names))


def interface_errors(listed: str) -> dict[str, str]:
    """Errors by interface of a table in JSON with the columns `name` and `error`; without one Open vSwitch has an empty set."""
    rows = json.loads(listed)["data"]
    return {str(name): error if isinstance(error, str) else "" for name, error in rows}


def gossip_addresses(node: Mapping[str, Any]) -> list[str]:
    """Where tunnels to a Node end, else its InternalIPs."""
    if annotated := node["metadata"].get("annotations", {}).get(TRANSPORT_ADDRESSES):
        return [address.strip() for address in annotated.split(",")]
    rows = node.get("status", {}).get("addresses", [])
    return [row["address"] for row in rows if row["type"] == "InternalIP"]


def gateways(node: Mapping[str, Any]) -> list[str]:
    """Addresses of a Node's gateway, one of each Pod CIDR."""
    return [gateway_ip(cidr) for cidr in node.get("spec", {}).get("podCIDRs", [])]


def peers(
    nodes: Sequence[Mapping[str, Any]],
    this_node: str,
    port: int,
    where: Callable[[Mapping[str, Any]], list[str]] = gossip_addresses,
) -> tuple[Peer, ...]:
    """Every other Node's addresses, and whether `port` there answers; a refusal is an answer."""
    addresses = [
        (node["metadata"]["name"], address)
        for node in nodes
        if node["metadata"]["name"] != this_node
        for address in where(node)
    ]

    async def all_() -> list[str]:
        room = asyncio.Semaphore(MAX_CONCURRENT)

        async def ask_one(address: str) -> str:
            async with room:
                # a Node without processor time may answer later than once
                return await unreachable(address, port) and await unreachable(address, port)

        return await asyncio.gather(*(ask_one(address) for _, address in addresses))

    troubles = asyncio.run(all_())
    return tuple(Peer(*place, why) for place, why in zip(addresses, troubles, strict=True))


def path_sizes(peers: Sequence[Peer], wanted: int, carries: int) -> tuple[PathSize, ...]:
    """Return the largest packets that come back from other Nodes that answer; none if the own card does not carry `wanted` bytes. Raises OSError."""
    if not wanted or carries < wanted:
        return ()
    nodes = {str(ip_address(peer.address)): peer.node for peer in peers if not peer.trouble}
    sizes = asyncio.run(largest_sizes(list(nodes)[:MAX_PATHS], wanted))
    return tuple(PathSize(nodes[address], address, size, wanted) for address, size in sizes.items())


def service_trouble(environ: Mapping[str, str]) -> str:
    """Why the Service of the API server does not answer, which kubelet names to every container; empty: it does."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    why = asyncio.run(unreachable(host, int(port))) if host else ""
    return f"{host}:{port} (Service default/kubernetes): {why}" if why else ""


def skew(server: Server) -> float:
    """Seconds that this clock is ahead of the one of `server`. Raises Failure."""
    before = time.time()
    header = date(server, "/version")
    now = (before + time.time()) / 2
    # the header names the second that has begun
    return now - (parsedate_to_datetime(header).timestamp() + 0.5)


class NodeInspector:
    """Collects a NodeState: what cannot be read is noted in `unseen`, and the rest is read all the same."""

    def __init__(self) -> None:
        self.unseen: dict[str, str] = {}

    def read(self, field: str, source: Callable[[], Any], otherwise: Any = None) -> Any:
        """Return the result of `source`, or `otherwise` where it fails."""
        try:
            return source()
        except Failure as error:
            self.unseen[field] = error.format_message()
        except subprocess.CalledProcessError as error:
            self.unseen[field] = f"{error.cmd[0]}: {(error.stderr or '').strip()}"
        except (OSError, subprocess.SubprocessError, ValueError, KeyError, Invalid, Unavailable) as error:
            self.unseen[field] = f"{type(error).__name__}: {error}"
        return otherwise


def gather(
    agent: Server, kubernetes: Callable[[Mapping[str, Any]], Server], environ: Mapping[str, str]
) -> NodeState:
    """The Node that this container runs on; `kubernetes` finds the API server by the agent's configuration."""
    node = NodeInspector()
    config, refused = _configuration(agent, node)
    agent_info = node.read("agentinfo", lambda: ask(_answering(agent, node), "/agentinfo", {}))
    info = agent_info or {}
    host = Host(Path(config.get("hostProcPathPrefix", "/host")) / "proc")
    server = node.read("server", lambda: kubernetes(config))

    def conditions() -> dict[str, str]:
        return messages_of(_required(agent_info, node, "agentinfo").get("agentConditions", ()))

    messages = node.read("conditions", conditions)
    state = NodeState(
        name=environ.get("NODE_NAME") or info.get("nodeRef", {}).get("name", ""),
        pod=f"{own_namespace(environ)}/{environ.get('POD_NAME', '')}",
        config=config,
        refusal=refused,
        conditions=messages,
        unknown_keys=node.read("unknown_keys", lambda: _unknown_keys(agent, node)),
        pod_mtu=info.get("networkInfo", {}).get("podMTU", 0),
        pod_cidrs=tuple(info.get("nodeSubnets", ())),
        transport=info.get("networkInfo", {}).get("transportInterface", ""),
        chains=node.read("chains", lambda: chains(drops_invalid=CONDITION in (messages or {}))),
        interfaces=node.read("interfaces", lambda: ovs_interfaces(config.get("ovsBridge", "br-int"))),
        service_trouble=node.read("service_trouble", lambda: service_trouble(environ)),
        skew=node.read("skew", lambda: skew(_required(server, node, "server"))),
    )
    state = _with_host(node, state, host)
    nodes = node.read("nodes", lambda: ask(_required(server, node, "server"), "/api/v1/nodes", {})["items"])
    return _with_paths(node, state, nodes)._replace(unseen=node.unseen)


def _with_host(node: NodeInspector, state: NodeState, host: Host) -> NodeState:
    """Return the state with files and settings of the Node."""
    return state._replace(
        cni_files=node.read("cni_files", host.cni_files),
        mtus=node.read("mtus", host.mtus),
        processes=node.read("processes", host.processes),
        file_systems=node.read("file_systems", host.file_systems),
        forwarding=node.read("forwarding", lambda: host.forwarding(state.pod_cidrs)),
        missing_modules=node.read(
            "missing_modules", lambda: host.missing_modules(needed_modules(state.config))
        ),
    )


def _with_paths(
    node: NodeInspector, state: NodeState, nodes: Sequence[Mapping[str, Any]] | None
) -> NodeState:
    """Return the state with what comes back from other Nodes; `nodes` None: they are not known."""
    port = state.config.get("clusterPort", 10351)

    def probe(where: Callable[[Mapping[str, Any]], list[str]]) -> tuple[Peer, ...]:
        return peers(_required(nodes, node, "nodes"), state.name, port, where)

    reached = node.read("peers", lambda: probe(gossip_addresses))

    def sizes() -> tuple[PathSize, ...]:
        wanted = state.pod_mtu + overhead(state._replace(peers=reached)) if state.pod_mtu else 0
        return path_sizes(
            _required(reached, node, "peers"), wanted, (state.mtus or {}).get(state.transport, 0)
        )

    return state._replace(
        peers=reached,
        pod_peers=node.read("pod_peers", lambda: probe(gateways)),
        path_sizes=node.read("path_sizes", sizes),
        devices=node.read(
            "devices", lambda: {peer.address: device_to(peer.address) for peer in reached or ()}
        ),
    )


def _configuration(agent: Server, node: NodeInspector) -> tuple[dict[str, Any], str]:
    """Return the values in effect by key, and why the agent waits for their correction; empty: it does not."""
    refused = ""

    def values() -> Any:
        nonlocal refused
        try:
            return ask(agent, "/config", {})
        except ErrorResponse:
            refused = refusal(agent)  # not asked where no answer came: an agent that hangs is waited for once
            raise

    rows = node.read("config", values, [])
    return {row["key"]: row["value"] for row in rows}, refused


def _unknown_keys(agent: Server, node: NodeInspector) -> tuple[str, ...]:
    """Return a sentence for each key without effect. Raises Failure."""
    return tuple(ask(_answering(agent, node), "/config/unknown", {}))


def _answering(agent: Server, node: NodeInspector) -> Server:
    """Return the agent, unless it has not answered before: one that hangs is waited for once. Raises Failure."""
    if why := node.unseen.get("config"):
        raise Failure(why)
    return agent


def _required(value: F | None, node: NodeInspector, field: str) -> F:
    """Return a value that was read before. Raises Failure if it could not be."""
    if value is None:
        raise Failure(node.unseen[field])
    return value
