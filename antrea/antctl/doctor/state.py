"""State of a Node as the doctor reads it, and the doctor's findings."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from antrea.decoding import decode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

NOTHING: Mapping[str, Any] = MappingProxyType({})
MAX_FINDINGS: Final = 200
"""Findings that are read of one agent."""
UNANSWERED: Final = "cannot be checked: "
"""How the finding of a check begins that has got no answer."""


class Finding(NamedTuple):
    """Something to repair; `repair` is a command for a root shell of the Node, unless it begins with kubectl."""

    node: str
    severity: str
    """error: traffic is or will be lost, or a check has got no answer; warning: traffic may be lost."""
    check: str
    finding: str
    repair: str
    peer: str = ""
    """The Node that the finding is about, where another one has made it."""


def findings_of(text: str, node: str) -> list[Finding]:
    """Return the findings that the agent of a Node, of any release, printed about itself; one of no Node is about the cluster.

    Raises Invalid.
    """
    rows = decode_json(text, list[dict[str, str]], "its answer")
    return [
        Finding(
            node if row.get("node") else "",
            "warning" if row.get("severity") == "warning" else "error",
            *(row.get(field, "") for field in Finding._fields[2:]),
        )
        for row in rows[:MAX_FINDINGS]
    ]


class FindingText(NamedTuple):
    """Severity of a finding, see Finding."""

    severity: str
    finding: str
    repair: str
    peer: str = ""
    """The Node that the finding is about, where another one has made it."""


def edit(namespace: str) -> str:
    """The command that changes the configuration."""
    return f"kubectl -n {namespace or 'kube-system'} edit configmap antrea-config"


class CniFile(NamedTuple):
    """A file of /etc/cni/net.d, and the types of its plugins in order; none if it cannot be read as one."""

    name: str
    plugins: tuple[str, ...] = ()


class Chain(NamedTuple):
    """A chain of the packet filter."""

    family: str
    table: str
    name: str
    hook: str = ""
    """Empty: other chains jump to it."""
    policy: str = ""
    rules: tuple[tuple[Mapping[str, Any], ...], ...] = ()
    """Expressions of each rule, as libnftables-json(5) has them."""
    tool: str = ""
    """The command of iptables that changes it, where it is not that of nft's family."""


class OvsInterface(NamedTuple):
    """An interface of the agent's bridge; `error` is why Open vSwitch cannot use it."""

    name: str
    error: str = ""


class Peer(NamedTuple):
    """Another Node, by an address of its own or of its gateway; `trouble` is why no packet comes back from there."""

    node: str
    address: str
    trouble: str = ""


class FileSystem(NamedTuple):
    """A file system of the Node in which the agent writes."""

    path: str
    free_bytes: int
    free_files: int
    """How many more files it has room for; -1: it has no limit."""


class PathSize(NamedTuple):
    """The largest packet that came back from another Node, in bytes with the IP header; `wanted` is what Pods need."""

    node: str
    address: str
    carried: int
    wanted: int


class NodeState(NamedTuple):
    """Everything that the checks ask. What could not be read is None, and `unseen` has the reason by the field's name."""

    name: str = ""
    pod: str = ""
    """The agent's, as namespace/name."""
    config: Mapping[str, Any] = NOTHING
    """Values in effect by key; a missing one is the default."""
    refusal: str = ""
    """Why the agent waits for the correction of the configuration that it was started with; empty: it does not."""
    unknown_keys: tuple[str, ...] | None = ()
    """A sentence for each key without effect."""
    cni_files: tuple[CniFile, ...] | None = ()
    chains: tuple[Chain, ...] | None = ()
    mtus: Mapping[str, int] | None = NOTHING
    """MTUs of all interfaces by their names."""
    pod_mtu: int = 0
    """MTU that the agent sets in Pods; 0: unknown."""
    pod_cidrs: tuple[str, ...] = ()
    """Pod CIDRs of this Node; empty: the Node may have Pods of both families."""
    transport: str = ""
    """Interface of traffic between Nodes."""
    processes: frozenset[str] | None = frozenset()
    interfaces: tuple[OvsInterface, ...] | None = ()
    missing_modules: tuple[str, ...] | None = ()
    """Kernel modules that this configuration needs and the kernel lacks."""
    peers: tuple[Peer, ...] | None = ()
    """Other Nodes, probed at the ends of their tunnels and the port of gossip."""
    pod_peers: tuple[Peer, ...] | None = ()
    """Other Nodes, probed at their gateways, which are reached as their Pods are."""
    path_sizes: tuple[PathSize, ...] | None = ()
    """Other Nodes that answer echo requests; empty also where the own card is too small."""
    file_systems: tuple[FileSystem, ...] | None = ()
    forwarding: Mapping[str, bool] | None = NOTHING
    """Whether the kernel forwards packets, by the name of the setting."""
    devices: Mapping[str, str] | None = NOTHING
    """Interface by which packets leave to each address of `peers`; empty: there is no route."""
    conditions: Mapping[str, str] | None = NOTHING
    """Messages of the conditions of the agent's AntreaAgentInfo by type."""
    service_trouble: str | None = ""
    """Why the Service of the API server does not answer."""
    skew: float | None = 0.0
    """Seconds that this Node's clock is ahead of the API server's."""
    unseen: Mapping[str, str] = NOTHING
