"""The checks: pure functions from what is seen of a Node to what is wrong with it."""

from __future__ import annotations

import itertools
import shlex
from typing import TYPE_CHECKING, Any

from antrea.antctl.doctor import paths, refusal
from antrea.antctl.doctor.control_plane.report import CONNECTIONS, RECONCILE, repair_of
from antrea.antctl.doctor.invalid_packets import invalid_packets
from antrea.antctl.doctor.state import UNANSWERED, Chain, Finding, FindingText, NodeState, edit
from antrea.apis.shown import one_line
from antrea.config.tunnel import tunnel_overhead
from antrea.features import FEATURES
from antrea.features.framework.doctor import ConditionCheck
from antrea.features.framework.plug import declared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

REJECTED = "ConfigRejected"
"""The condition of an agent or the controller while a newer configuration is not in effect."""
PART_FAILED = "PartFailed"
"""The condition of an agent or the controller while parts of it fail and are started again."""
OUR_CNI = "10-antrea.conflist"
META_PLUGINS = {"multus", "multus-shim"}
"""They come first, and call Antrea."""
OUR_TABLES = ("antrea", "antrea-shield", "antrea-boot", "antrea-earlier", "antrea-kept")
PROXY_CHAINS = (
    "KUBE-SERVICES",
    "KUBE-NODEPORTS",
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-FORWARD",
    "KUBE-PROXY-FIREWALL",
)
"""kube-proxy's; kubelet makes chains with other names."""
PROXY_TABLE = "kube-proxy"
PROXY_DEVICE = "kube-ipvs0"
MIN_FREE_BYTES = 1 << 20
CLOCK_SECONDS, CLOCK_ERROR_SECONDS = 10.0, 60.0
"""A Date header is a second coarse; an hour of difference makes tokens and certificates invalid."""


def configuration(node: NodeState) -> Iterator[FindingText]:
    """Find settings that the agent has refused or does not follow."""
    repair = edit(node.pod.partition("/")[0])
    if rejected := (node.conditions or {}).get(REJECTED):
        yield FindingText(
            "error",
            f"the configuration is refused, the last good configuration stays in effect: {rejected}",
            repair,
        )
    for sentence in node.unknown_keys or ():
        yield FindingText("warning", f"antrea-agent.conf: {sentence}", repair)


def cni_configs(node: NodeState) -> Iterator[FindingText]:
    """The runtime takes the first file of /etc/cni/net.d."""
    files = node.cni_files or ()
    if OUR_CNI not in [file.name for file in files]:
        text = f"/etc/cni/net.d has no {OUR_CNI}, so that new Pods are not connected by Antrea"
        yield FindingText("error", text, restart(node))
    chained = node.config.get("trafficEncapMode") == "networkPolicyOnly"
    for file in files:
        if file.name == OUR_CNI or chained or META_PLUGINS.intersection(file.plugins):
            continue
        path = f"/etc/cni/net.d/{file.name}"
        repair = f"mv {shlex.quote(path)} {shlex.quote(f'{path}.disabled')}"
        named = f"{file.name} ({', '.join(file.plugins)})" if file.plugins else file.name
        if file.name < OUR_CNI:
            text = f"CNI configuration {named} comes before {OUR_CNI}: new Pods are not connected by Antrea"
            yield FindingText("error", text, repair)
        else:
            text = (
                f"CNI configuration {named} is of another plugin, which takes over whenever {OUR_CNI} is away"
            )
            yield FindingText("warning", text, repair)


def restart(node: NodeState) -> str:
    """The command that makes the agent's Pod, and with it the CNI configuration, anew."""
    namespace, _, name = node.pod.partition("/")
    return f"kubectl -n {namespace or 'kube-system'} delete pod {name}".rstrip()


def kube_proxy(node: NodeState) -> Iterator[FindingText]:
    """With proxyAll its rules would take the traffic first."""
    if not node.config.get("antreaProxy.proxyAll"):
        return
    chains = node.chains or ()
    namespace, _, name = node.pod.partition("/")
    if "kube-proxy" in (node.processes or ()):
        text = "kube-proxy runs beside antreaProxy.proxyAll and takes the traffic of Services first"
        if node.config.get("kubeAPIServerOverride"):
            yield FindingText(
                "error", text, "antctl kube-proxy takeover --apply  # --rollback gives all back"
            )
        else:
            # without kube-proxy this agent would find no kube-apiserver when it starts
            why = "; it cannot be taken away, as kubeAPIServerOverride is empty"
            repair = f"{edit(namespace)}  # set antreaProxy.proxyAll: false in antrea-agent.conf"
            yield FindingText("error", f"{text}{why}", repair)
        return
    for tool in sorted({_tool(chain) for chain in chains if chain.name in PROXY_CHAINS}):
        yield FindingText(
            "error",
            f"{tool} rules of a former kube-proxy take the traffic of Services before antreaProxy.proxyAll",
            f"{tool}-save | grep -v KUBE | {tool}-restore",
        )
    for family in sorted({chain.family for chain in chains if chain.table == PROXY_TABLE}):
        yield FindingText(
            "error",
            f"nftables table {family} {PROXY_TABLE} of a former kube-proxy takes the traffic of Services",
            f"nft delete table {family} {PROXY_TABLE}",
        )
    if PROXY_DEVICE in (node.mtus or ()):
        yield FindingText(
            "error",
            f"{PROXY_DEVICE} of a former kube-proxy has the addresses of Services",
            f"kubectl -n {namespace or 'kube-system'} exec {name} -c antrea-agent -- antctl kube-proxy node --clean",
        )


def ovs_ports(node: NodeState) -> Iterator[FindingText]:
    """Ports whose interface is gone stay in the database for ever."""
    bridge = node.config.get("ovsBridge", "br-int")
    namespace, _, name = node.pod.partition("/")
    for interface in node.interfaces or ():
        if interface.error:
            yield FindingText(
                "warning",
                f"port {interface.name} of bridge {bridge} is stale: {interface.error}",
                f"kubectl -n {namespace or 'kube-system'} exec {name} -c antrea-ovs -- "
                f"ovs-vsctl --if-exists del-port {bridge} {interface.name}",
            )


def mtu(node: NodeState) -> Iterator[FindingText]:
    """A packet that is too big for the underlay is lost without a word."""
    mtus, wanted = node.mtus or {}, node.pod_mtu
    if not wanted:
        return
    gateway = node.config.get("hostGateway", "antrea-gw0")
    has = mtus.get(gateway)
    if has is not None and has != wanted:
        yield FindingText(
            "warning",
            f"{gateway} has an MTU of {has}, Pods have {wanted}",
            f"ip link set dev {gateway} mtu {wanted}",
        )
    tunnel = overhead(node)
    needed = wanted + tunnel
    carries = mtus.get(node.transport)
    if carries is None or carries >= needed:
        return
    text = (
        f"Pods send packets of {wanted} bytes, which take {needed} between Nodes, and {node.transport} "
        f"carries {carries}: longer packets are lost"
    )
    if node.config.get("defaultMTU"):
        # a card does not carry more for being told to
        repair = f"{edit(node.pod.partition('/')[0])}  # set defaultMTU: {carries - tunnel} in antrea-agent.conf, or 0"
        yield FindingText("error", f"{text}; defaultMTU asks for it", repair)
    else:
        # the interface had this MTU when the agent took the MTU of Pods from it
        yield FindingText("error", text, f"ip link set dev {node.transport} mtu {needed}")


def overhead(node: NodeState) -> int:
    """Return the bytes that a packet of a Pod grows by on the way to another Node."""
    ends = [peer.address for peer in node.peers or ()]
    return tunnel_overhead(paths.tunnel_type(node.config), ends) if paths.has_tunnels(node.config) else 0


def path_mtu(node: NodeState) -> Iterator[FindingText]:
    """Between cards that carry a packet, a switch or a router may drop it without a word."""
    for path in node.path_sizes or ():
        if path.carried < path.wanted:
            most = path.carried - overhead(node)
            yield FindingText(
                "warning",
                f"packets of {path.wanted} bytes, as Pods need them, do not come back from Node {path.node} ({path.address}), and those of "
                f"{path.carried} do: a switch or router on the way has a smaller MTU than {node.transport}",
                f"{edit(node.pod.partition('/')[0])}  # set defaultMTU: {most} in antrea-agent.conf, or raise the MTU on the way",
                path.node,
            )


def file_systems(node: NodeState) -> Iterator[FindingText]:
    """The agent writes the state of Pods, policies and logs, and refuses new Pods where it cannot."""
    for place in node.file_systems or ():
        lacks = (
            "free space"
            if place.free_bytes < MIN_FREE_BYTES
            else "free inodes"
            if place.free_files == 0
            else ""
        )
        if lacks:
            text = f"the file system of {place.path} has no {lacks}: new Pods are refused, and logs end"
            yield FindingText(
                "error", text, f"du -xah {place.path} | sort -h | tail -n 20  # what to remove or move"
            )


def forwarding(node: NodeState) -> Iterator[FindingText]:
    """Another program, such as one that applies /etc/sysctl.d again, may turn off what the agent has turned on."""
    for name, on in (node.forwarding or {}).items():
        if not on:
            text = f"{name} of this Node is 0: packets of Pods to and from other networks are not forwarded"
            yield FindingText(
                "error", text, f"sysctl -w {name}=1  # and in the file of /etc/sysctl.d that sets it to 0"
            )


def gossip_port(node: NodeState) -> Iterator[FindingText]:
    """Nodes that cannot gossip think each other dead, and Egress IPs move or are had twice."""
    port = node.config.get("clusterPort", 10351)
    for peer in node.peers or ():
        if peer.trouble:
            tool = "ip6tables" if ":" in peer.address else "iptables"
            accept = [
                f"{tool} -I INPUT -p {protocol} --dport {port} -j ACCEPT" for protocol in ("tcp", "udp")
            ]
            yield FindingText(
                "error",
                f"port {port} of Node {peer.node} ({peer.address}) does not answer: {peer.trouble}; "
                f"the repair is for Node {peer.node}",
                " && ".join(accept),
                peer.node,
            )


def kernel_modules(node: NodeState) -> Iterator[FindingText]:
    """Find kernel modules that the configuration needs and that are neither loaded nor built in."""
    for name in node.missing_modules or ():
        yield FindingText(
            "error",
            f"kernel module {name} is not loaded, and this configuration needs it",
            f"modprobe {name}",
        )


def foreign_drops(node: NodeState) -> Iterator[FindingText]:
    """An accept of ours does not undo another chain's drop."""
    gateway = node.config.get("hostGateway", "antrea-gw0")
    families = {"ip6" if ":" in cidr else "ip" for cidr in node.pod_cidrs} or {"ip", "ip6"}
    for chain in node.chains or ():
        if chain.hook == "forward" and chain.table not in OUR_TABLES and chain.family in {*families, "inet"}:
            severity = drops(chain, gateway)
            how = "drops" if severity == "error" else "drops, unless one of its rules lets it pass,"
            text = f"chain {chain.name} of table {chain.family} {chain.table} {how} what Pods send out of the Node"
            if severity:
                yield FindingText(severity, text, accept(chain, gateway))


def drops(chain: Chain, gateway: str) -> str:
    """error if packets from `gateway`, or to it, end at a drop of this chain, warning if they may, else empty."""
    accepted: set[str] = set()
    severity = "error"
    for rule in chain.rules:
        verdict = _verdict(rule[-1]) if rule else ""
        ways = {way for way in ("iifname", "oifname") if verdict == "accept" and _only(rule, way, gateway)}
        accepted |= ways
        if accepted == {"iifname", "oifname"}:
            return ""
        if verdict == "drop" and all("counter" in part for part in rule[:-1]):
            return severity
        if not ways and verdict in ("accept", "jump"):
            # what this lets pass may be what Pods send: we do not know
            severity = "warning"
    return severity if chain.policy == "drop" else ""


def _verdict(expression: Mapping[str, Any]) -> str:
    """accept, drop (which a reject is, too), jump to a chain that is not kube-proxy's, or empty."""
    if expression.get("xt") == {"type": "target", "name": "REJECT"}:
        # iptables' own, which nft does not translate
        return "drop"
    ((name, value), *_) = expression.items()
    if name in ("jump", "goto"):
        return "" if str(value.get("target", "")).startswith("KUBE-") else "jump"
    return {"accept": "accept", "drop": "drop", "reject": "drop"}.get(name, "")


def _only(rule: tuple[Mapping[str, Any], ...], way: str, gateway: str) -> bool:
    """Whether the rule matches on the interface and on nothing else."""
    matches = [next(iter(part.values())) for part in rule if next(iter(part)) not in ("counter", "accept")]
    return len(matches) == 1 and (
        isinstance(matches[0], dict)
        and (matches[0].get("left"), matches[0].get("right")) == ({"meta": {"key": way}}, gateway)
    )


def accept(chain: Chain, gateway: str) -> str:
    """The command that lets packets from and to `gateway` pass the chain; iptables' own where it made the chain."""
    tool = _tool(chain)
    if tool and (chain.table, chain.name) == ("filter", "FORWARD"):
        return " && ".join(f"{tool} -I FORWARD {way} {gateway} -j ACCEPT" for way in ("-i", "-o"))
    place = f"{chain.family} {chain.table} {chain.name}"
    rules = (f"nft insert rule {place} {way} {gateway} accept" for way in ("iifname", "oifname"))
    return " && ".join(rules)


def _tool(chain: Chain) -> str:
    """The iptables that changes a chain; empty if only nft does."""
    return chain.tool or {"ip": "iptables", "ip6": "ip6tables"}.get(chain.family, "")


def conditions(rows: Sequence[ConditionCheck]) -> Callable[[NodeState], Iterator[FindingText]]:
    """Return a check that has a finding for each of these conditions that the agent reports."""

    def check(node: NodeState) -> Iterator[FindingText]:
        for row in rows:
            if message := (node.conditions or {}).get(row.condition):
                yield FindingText(row.severity, message, row.command(message, node.pod))

    return check


def of_features() -> dict[str, tuple[Callable[[NodeState], Iterator[FindingText]], tuple[str, ...]]]:
    """Return the checks that features declare, by name."""
    rows: dict[str, list[ConditionCheck]] = {}
    for row in itertools.chain.from_iterable(
        declared(FEATURES, "doctor", ConditionCheck, "CONDITIONS").values()
    ):
        rows.setdefault(row.check, []).append(row)
    return {name: (conditions(group), ("conditions",)) for name, group in rows.items()}


def clock(node: NodeState) -> Iterator[FindingText]:
    """Tokens, certificates and leases are judged by the clock."""
    skew = node.skew or 0.0
    if abs(skew) >= CLOCK_SECONDS:
        yield FindingText(
            "error" if abs(skew) >= CLOCK_ERROR_SECONDS else "warning",
            f"the clock of this Node is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the API server's",
            "timedatectl set-ntp true",
        )


def connection(kind: str, check: str) -> Callable[[NodeState], Iterator[FindingText]]:
    """Return a check for a condition that is there at all times, with a message while it is False."""

    def judge(node: NodeState) -> Iterator[FindingText]:
        if message := (node.conditions or {}).get(kind):
            namespace, _, name = node.pod.partition("/")
            yield FindingText("error", message, repair_of(check, namespace or "kube-system", name))

    return judge


def rights(node: NodeState) -> Iterator[FindingText]:
    """Rights that the agent's ServiceAccount lacks now: open watches continue without them until they end."""
    for why in sorted({why for why in node.unseen.values() if " is forbidden: " in why}):
        yield FindingText("error", f"a right of the agent is missing: {why}", RECONCILE)


def parts(node: NodeState) -> Iterator[FindingText]:
    """Parts of the agent that failed: what they do stands as it was, and does not follow changes."""
    if why := (node.conditions or {}).get(PART_FAILED):
        namespace, _, name = node.pod.partition("/")
        repair = f"kubectl -n {namespace or 'kube-system'} logs {name} -c antrea-agent"
        yield FindingText("error", f"parts of the agent fail and are started again: {why}", repair)


CHECKS: dict[str, tuple[Callable[[NodeState], Iterator[FindingText]], tuple[str, ...]]] = {
    **{
        check: (connection(kind, check), ("conditions",))
        for kind, check in CONNECTIONS.items()
        if check != "agent-health"
    },
    "rights": (rights, ()),
    "config": (configuration, ("conditions", "unknown_keys")),
    "cni-configs": (cni_configs, ("cni_files",)),
    "kube-proxy": (kube_proxy, ("chains", "mtus", "processes")),
    "ovs-ports": (ovs_ports, ("interfaces",)),
    "mtu": (mtu, ("mtus",)),
    "path-mtu": (path_mtu, ("path_sizes",)),
    "disk-space": (file_systems, ("file_systems",)),
    "forwarding": (forwarding, ("forwarding",)),
    "gossip-port": (gossip_port, ("peers",)),
    "transport": (paths.transport, ("peers", "devices")),
    "tunnels": (paths.tunnels, ("peers", "pod_peers")),
    "services": (paths.services, ("service_trouble",)),
    "kernel-modules": (kernel_modules, ("missing_modules",)),
    "foreign-drops": (foreign_drops, ("chains",)),
    "invalid-packets": (invalid_packets, ("conditions",)),
    **of_features(),
    "time-skew": (clock, ("skew",)),
    "parts": (parts, ("conditions",)),
}
"""Each check with the fields that it cannot do without."""


def findings(node: NodeState) -> list[Finding]:
    """All checks. What a check could not see is a finding, too: silence would pass for health."""
    if node.refusal:
        # it serves nothing but this, and has changed nothing of the Node
        text = f"the agent waits for the correction of its configuration, which was refused: {node.refusal}"
        repair = edit(node.pod.partition("/")[0])
        return [Finding(node.name, "error", refusal.CHECK, one_line(text), repair)]
    said = [Finding(node.name, row.severity, "agent", row.finding, row.repair) for row in agent(node)]
    for name, (check, fields) in CHECKS.items():
        unseen = [field for field in fields if getattr(node, field) is None]
        if unseen:
            why = "; ".join(sorted({node.unseen.get(field, "no cause is given") for field in unseen}))
            said.append(Finding(node.name, "error", name, f"{UNANSWERED}{why}", ""))
            continue
        said += [
            Finding(node.name, row.severity, name, row.finding, row.repair, row.peer) for row in check(node)
        ]
    return said


def agent(node: NodeState) -> Iterator[FindingText]:
    """The agent itself, which is asked first."""
    if why := node.unseen.get("config"):
        yield FindingText(
            "error",
            f"the agent does not answer, and checks of this Node assume the default configuration: {why}",
            restart(node),
        )


def controller(info: Mapping[str, Any]) -> Iterator[Finding]:
    """The controller's own configuration, by its AntreaControllerInfo."""
    if why := messages_of(info.get("controllerConditions", ())).get(REJECTED):
        text = (
            f"the controller's configuration is refused, the last good configuration stays in effect: {why}"
        )
        repair = edit(info.get("podRef", {}).get("namespace", ""))
        yield Finding(info.get("nodeRef", {}).get("name", ""), "error", "config", text, repair)
    if why := messages_of(info.get("controllerConditions", ())).get(PART_FAILED):
        about = info.get("podRef", {})
        text = f"parts of the controller fail and are started again: {why}"
        repair = f"kubectl -n {about.get('namespace') or 'kube-system'} logs {about.get('name', '')}"
        yield Finding(info.get("nodeRef", {}).get("name", ""), "error", "parts", text, repair)


def messages_of(conditions: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the messages of conditions by their types."""
    return {row["type"]: row.get("message", "") for row in conditions}


def pod_mtus(infos: Sequence[Mapping[str, Any]], namespace: str) -> Iterator[Finding]:
    """Nodes whose Pods have another MTU than those of most Nodes; `infos` are AntreaAgentInfos, `namespace` is that of Antrea."""
    mtus = {
        info["metadata"]["name"]: info["networkInfo"]["podMTU"]
        for info in infos
        if info.get("networkInfo", {}).get("podMTU")
    }
    values = list(mtus.values())
    usual = max(values, key=lambda value: (values.count(value), value), default=0)
    for name, value in sorted(mtus.items()):
        if value != usual:
            yield Finding(
                *(name, "warning", "mtu"),
                f"Pods of this Node have an MTU of {value}, those of most Nodes {usual}",
                f"{edit(namespace)}  # set defaultMTU: {min(values)} in antrea-agent.conf, or give the cards of all Nodes one MTU",
            )
