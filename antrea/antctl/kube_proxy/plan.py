"""Plan of a take-over: its changes and its obstacles, as pure functions of the observed cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from antrea.antctl.kube_proxy.node_address import node_address_notes
from antrea.config.agent import AgentConfig
from antrea.config.load import parse
from antrea.decoding import guarded
from antrea.errors import Invalid
from antrea.features.framework.config_validation import accept_agent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from antrea.antctl.config_owner import ConfigOwner

AGENT_CONF, CONTROLLER_CONF = "antrea-agent.conf", "antrea-controller.conf"
CONFIG_MAP = "antrea-config"
OVERRIDE = "kubeAPIServerOverride"
FORCE = "--force-conflicts"
MODES = ("iptables", "nftables", "ipvs")
"""Modes of kube-proxy whose state antctl can remove."""
UNKNOWN = "unknown"
"""The mode where no configuration of kube-proxy is left to read."""
METRICS_PORT = 10249
"""Port of kube-proxy's metrics, also where another program such as k3s embeds it."""


class NodeView(NamedTuple):
    """The answer of the agent of a Node (`node.look`); `unseen` is why there is none."""

    name: str
    report: Mapping[str, Any]
    unseen: str = ""

    @property
    def is_free(self) -> bool:
        """Whether nothing is left of kube-proxy."""
        left = ("runs", "tables", "chains", "ipvs", "virtualServers", "ipSets")
        return not self.unseen and not any(self.report.get(key) for key in left)

    @property
    def serves(self) -> str:
        """Why Services are not served without kube-proxy; empty if they are."""
        if self.unseen:
            return self.unseen
        if not self.report["proxyAll"]:
            return "antreaProxy.proxyAll is not in effect"
        return f"{self.report['trouble']}" if self.report["trouble"] else ""


class ClusterView(NamedTuple):
    """Observed state of the cluster."""

    daemon_set: Mapping[str, Any] | None
    """kube-proxy's."""
    proxy_config: Mapping[str, Any]
    """kube-proxy's own configuration."""
    files: Mapping[str, str]
    """Files of ConfigMap antrea-config."""
    api_server: str
    """New value of kubeAPIServerOverride; empty keeps the present one."""
    endpoints: Sequence[str]
    """Endpoints of kube-apiserver as host:port."""
    nodes: Sequence[NodeView]
    services: Sequence[Mapping[str, Any]] = ()
    node_objects: Sequence[Mapping[str, Any]] = ()
    namespace: str = "kube-system"
    """Antrea's."""
    owner: ConfigOwner | None = None
    """The tool that applies ConfigMap antrea-config."""

    @property
    def mode(self) -> str:
        if self.daemon_set is None and not self.proxy_config:
            return UNKNOWN
        return str(self.proxy_config.get("mode") or "iptables")

    @property
    def is_deleted(self) -> bool:
        """Whether nothing starts or runs kube-proxy: what is left of it can be removed, and not given back."""
        return self.daemon_set is None and not any(node.report.get("runs") for node in self.nodes)

    @property
    def override(self) -> str:
        """Value of kubeAPIServerOverride in the agents' configuration after the take-over."""
        return self.api_server or str(_values(self.files, AGENT_CONF).get(OVERRIDE) or "")


def blockers(view: ClusterView, *, force_conflicts: bool = False) -> Iterator[str]:
    """Sentences, each with the repair. `force_conflicts`: the ConfigMap may be edited though a tool applies it."""
    if view.daemon_set is None:
        yield from _hidden_proxies(view)
    if view.mode not in (*MODES, UNKNOWN):
        yield f"kube-proxy runs in mode {view.mode}, whose state this command cannot remove: set another mode in ConfigMap kube-proxy and restart it first"
    if not view.override:
        known = ", ".join(view.endpoints) or "unknown"
        yield f"{OVERRIDE} is empty, so that no agent would find kube-apiserver when it starts: name it by --api-server (endpoints: {known})"
    yield from _config_blockers(view.files)
    if view.owner and not force_conflicts and next(config_changes(view), None):
        first = view.owner.change(view.namespace, "FILE").removeprefix("# ")
        yield (
            f"ConfigMap {view.namespace}/{CONFIG_MAP} is applied by {view.owner}, which would undo the change: set the values there "
            f"first ({first}; --values FILE writes them), or give {FORCE} and set them there before it applies the ConfigMap again"
        )
    for node in view.nodes:
        if node.unseen:
            yield f"Node {node.name}: {node.unseen}"
        elif node.report["legacy"]:
            yield f"Node {node.name} has tables of iptables-legacy ({', '.join(node.report['legacy'])}), which this command cannot change: let kube-proxy use nf_tables"
        elif node.report["held"]:
            yield f"Node {node.name}: rules of another program lead to chains of kube-proxy ({'; '.join(node.report['held'])}): remove them first"


def _hidden_proxies(view: ClusterView) -> Iterator[str]:
    """Yield Nodes with kube-proxy in a cluster that has no DaemonSet of it."""
    if not view.is_deleted:
        yield "there is no DaemonSet of kube-proxy in kube-system (label k8s-app=kube-proxy), and kube-proxy runs: stop what starts it, and see docs/take-over.md"
    for node in view.nodes:
        listening = node.report.get("listening") or ()
        if not node.report.get("runs") and any(
            (socket[0], socket[2]) == ("TCP", METRICS_PORT) for socket in listening
        ):
            yield f"Node {node.name}: a program listens at port {METRICS_PORT} of TCP, as kube-proxy does, which k3s has within itself (there --disable-kube-proxy ends it): stop that first"


def _config_blockers(files: Mapping[str, str]) -> Iterator[str]:
    try:
        if "AntreaProxy" not in accept_agent(parse(AgentConfig, files.get(AGENT_CONF, "")).config):
            yield "AntreaProxy is off: set antreaProxy.enable to true, and featureGates.AntreaProxy to nothing else"
    except Invalid as error:
        yield f"{AGENT_CONF} is refused: {error}"


def chart_values(*, proxy_all: bool, override: str) -> dict[str, Any]:
    """Return values of the chart that render the keys of a take-over."""
    return {"antreaProxy": {"proxyAll": proxy_all}, OVERRIDE: override}


def config_changes(view: ClusterView) -> Iterator[str]:
    """Describe the changes of ConfigMap antrea-config."""
    if not (_values(view.files, AGENT_CONF).get("antreaProxy") or {}).get("proxyAll"):
        yield f"ConfigMap {CONFIG_MAP}, {AGENT_CONF}: antreaProxy.proxyAll becomes true; all agents serve NodePorts, load balancer and external IPs"
    for file in (AGENT_CONF, CONTROLLER_CONF):
        before = str(_values(view.files, file).get(OVERRIDE) or "")
        if view.api_server and before != view.api_server:
            yield f"ConfigMap {CONFIG_MAP}, {file}: {OVERRIDE} becomes {view.api_server}"


def changes(view: ClusterView) -> Iterator[str]:
    """Describe the changes that applying makes, in order."""
    agent = _values(view.files, AGENT_CONF)
    yield from config_changes(view)
    yield from _daemon_set_changes(view)
    for node in view.nodes:
        if not node.unseen:
            yield f"Node {node.name}: {'; '.join(_node_changes(node)) or 'nothing to remove'}"
    if wanted := view.proxy_config.get("nodePortAddresses"):
        addresses = (agent.get("antreaProxy") or {}).get("nodePortAddresses") or []
        if sorted(addresses) != sorted(wanted):
            yield f"Note: kube-proxy serves NodePorts at {', '.join(wanted)} (nodePortAddresses), antreaProxy.nodePortAddresses is {addresses or 'empty: all addresses'}; this command leaves it"
    listening = {node.name: node.report.get("listening") or () for node in view.nodes}
    conf = view.files.get(AGENT_CONF, "")
    yield from node_address_notes(view.services, view.node_objects, listening, conf)
    if (view.proxy_config.get("ipvs") or {}).get("strictARP"):
        yield "Note: kube-proxy has set net.ipv4.conf.all.arp_ignore to 1 and arp_announce to 2 on each Node (strictARP); this command leaves them"


def _daemon_set_changes(view: ClusterView) -> Iterator[str]:
    if view.daemon_set is not None:
        name = view.daemon_set["metadata"]["name"]
        yield f"DaemonSet kube-system/{name}: gets a nodeAffinity for Nodes with label {LABEL}, which all Nodes that have it now get; its Pods are made anew once"
    elif view.is_deleted:
        yield "Note: kube-proxy has no DaemonSet and runs on no Node; this command removes what it has left, and --rollback cannot give it back"


LABEL = "antrea.io/kube-proxy"
"""Label of Nodes on which kube-proxy must still run."""


def _node_changes(node: NodeView) -> Iterator[str]:
    if node.report["runs"]:
        yield f"loses label {LABEL}, so that its kube-proxy ends"
    if node.report["chains"]:
        yield f"{node.report['chains']} chains of kube-proxy and the rules that lead to them go"
    for table in node.report["tables"]:
        yield f"nftables table {table} goes"
    if node.report["ipvs"]:
        yield f"kube-ipvs0 goes, with {node.report.get('ipvsAddresses', 0)} addresses of Services"
    if servers := node.report.get("virtualServers"):
        yield f"{servers} virtual servers of IPVS are removed; connections through them pause for a moment and continue"
    if sets := node.report.get("ipSets"):
        yield f"{sets} ipsets of kube-proxy go"


def _values(files: Mapping[str, str], file: str) -> Mapping[str, Any]:
    try:
        values = guarded(file, yaml.safe_load, files.get(file, ""))
    except Invalid:
        return {}
    return values if isinstance(values, dict) else {}
