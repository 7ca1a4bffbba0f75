"""`antctl check installation`: whether Antrea works here. parity: pkg/antctl/raw/check/installation"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.antctl.check.internet import DEFAULT, Target, why_unreached
from antrea.antctl.check.report import Choice, Undecided, run_tests
from antrea.antctl.check.room import wait_ready
from antrea.antctl.check.workload import IDLE, SERVE, deployment, image_of_agents, probe, service
from antrea.antctl.failure import Failure
from antrea.antctl.pod_exec import Done, run_in_pod
from antrea.antctl.remote import AGENT_PODS
from antrea.antctl.request import ErrorResponse, ask
from antrea.apis.memberlist import KEYS, SECRET, parse_keys
from antrea.decoding import decode_base64, decode_text
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.antctl.check.room import Room

CLIENT, SAME, OTHER = "test-client", "echo-same-node", "echo-other-node"
AGENTS_SECONDS = 300.0
SERVICE_SECONDS = 2.0
"""How long a new Service may take until it works on a Node."""
RETRY_SECONDS = 0.5
NO_OTHER_NODE = "Inter-Node test requires multiple Nodes"


class NotRunnable(Undecided):
    """It makes no sense here."""

    verdict, because = "skipped", "test is not runnable: "


class Options(NamedTuple):
    """Options of `antctl check installation`."""

    namespace: str
    """Antrea's."""
    image: str
    """Image of the test Pods; empty: that of the agents."""
    choice: Choice
    policy_seconds: float
    internet: Target | None = None
    """Host that Pods have to reach outside of the cluster; None: the default one, if their Node reaches it."""


class Bench:
    """Clients, and servers on the same Node and on another one."""

    def __init__(self, room: Room, options: Options) -> None:
        self.room = room
        self.options = options
        self.clients: list[str] = []
        self.pod_ips: dict[str, list[str]] = {}
        """Pod addresses by the name of the Deployment; without OTHER if there is one Node only."""
        self.service_ips: dict[str, list[str]] = {}
        self.node = ""
        """Node of the clients."""
        self._image = options.image
        self._names: dict[str, str] = {}

    def deploy(self) -> None:
        """Raises Failure if Antrea is not ready, or the Pods do not run in time."""
        room, report, namespace = self.room, self.room.report, self.options.namespace
        report.print_line("Test starting....")
        apps = f"/apis/apps/v1/namespaces/{namespace}"
        wait_ready(room.server, report, "Deployment", "antrea-controller", f"{apps}/deployments")
        agents = (room.server, report, "DaemonSet", "antrea-agent", f"{apps}/daemonsets")
        wait_ready(*agents, seconds=AGENTS_SECONDS)
        self._image = self._image or image_of_agents(room.server, namespace)
        room.create("installation-checker", "post installation")
        servers = [SAME]
        if len(ask(room.server, "/api/v1/nodes", {"limit": "2"})["items"]) > 1:
            servers.append(OTHER)
        else:
            report.print_line("skipping other Node Deployments as multiple Nodes are not available")
        for name in servers:
            report.print_line(f"Deploying {name} Service {name}...")
            self.service_ips[name] = room.make("api/v1", "services", service(name, 80))["spec"]["clusterIPs"]
        report.print_line(f"Deploying client Deployment {CLIENT}...")
        room.make("apis/apps/v1", "deployments", self._deployment(CLIENT, IDLE))
        for name in servers:
            room.make("apis/apps/v1", "deployments", self._deployment(name, SERVE, affinity=affinity(name)))
        for name in (CLIENT, *servers):
            room.wait_deployment(name)
            pods = room.pods(f"name={name}")
            self.pod_ips[name] = [row["ip"] for row in pods[0]["status"]["podIPs"]]
            self._names[name] = pods[0]["metadata"]["name"]
        clients = room.pods(f"name={CLIENT}")
        self.clients = [pod["metadata"]["name"] for pod in clients]
        self.node = clients[0]["spec"]["nodeName"]
        report.print_line("Deployment is validated successfully")

    def _deployment(self, name: str, script: str, **more: Any) -> dict[str, Any]:
        labels = {"app": "antrea", "component": "installation-checker", "name": name}
        return deployment(name, self._image, labels, script, **more)

    def name_of(self, server: str) -> str:
        """The Pod of a Deployment."""
        return self._names[server]

    def reaches(self, client: str, host: str, port: int = 80) -> str:
        """Why no TCP connection can be made; empty if it can. Raises Failure if that could not be tried."""
        done = run_in_pod(self.room.server, f"{self.room.namespace}/{client}", probe(host, port))
        if not done.code:
            return ""
        why = failed_because(done)
        self.room.report.print_line(f"tcp probe of {host} port {port} failed: {why}")
        return why

    def unreached_by_node(self, host: str, port: int) -> str:
        """Return why the Node of the clients cannot make a TCP connection, by a probe in its agent; empty if it can. Raises Failure."""
        path = f"/api/v1/namespaces/{self.options.namespace}/pods"
        query = {"labelSelector": AGENT_PODS, "fieldSelector": f"spec.nodeName={self.node}"}
        agents = ask(self.room.server, path, query)["items"]
        if not agents:
            raise Failure(f"Node {self.node} has no agent to ask whether the Node reaches {host}")
        pod = f"{self.options.namespace}/{agents[0]['metadata']['name']}"

        def attempt() -> str:
            done = run_in_pod(self.room.server, pod, probe(host, port), container="antrea-agent")
            return failed_because(done) if done.code else ""

        return why_unreached(attempt)


def failed_because(done: Done) -> str:
    """Return the reason that a failed command gave."""
    return (done.stderr or done.stdout).strip() or f"exit code {done.code}"


def affinity(name: str) -> dict[str, Any]:
    """SAME runs where the client runs, OTHER where it does not."""
    kind = "podAffinity" if name == SAME else "podAntiAffinity"
    expression = {"key": "name", "operator": "In", "values": [CLIENT]}
    term = {"labelSelector": {"matchExpressions": [expression]}, "topologyKey": "kubernetes.io/hostname"}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def to_internet(bench: Bench) -> None:
    """Raises Failure; NotRunnable if the cluster has no way to the internet, and the user named no target."""
    host, port = bench.options.internet or DEFAULT
    for client in bench.clients:
        source = f"{bench.room.namespace}/{client}"
        bench.room.report.print_line(f"Validating connectivity from Pod {source} to the world ({host})...")
        why = why_unreached(functools.partial(bench.reaches, client, host, port))
        if not why:
            bench.room.report.print_line(f"Pod {source} was able to connect to {host}")
            continue
        if bench.options.internet is None and (of_node := bench.unreached_by_node(host, port)):
            raise NotRunnable(
                f"neither Pod {source} nor its Node {bench.node} reaches {host} port {port} ({of_node}), as in a "
                "cluster without access to the internet; --internet-target names a host that Pods have to reach"
            )
        raise Failure(f"Pod {source} was not able to connect to {host}: {why}")


def to_pod(server: str) -> Callable[[Bench], None]:
    """A test of connections to the Pod of `server`."""

    def test(bench: Bench) -> None:
        if server not in bench.pod_ips:
            raise NotRunnable(NO_OTHER_NODE)
        report, name = bench.room.report, bench.name_of(server)
        for client in bench.clients:
            for ip in bench.pod_ips[server]:
                source, target = f"{bench.room.namespace}/{client}", f"{bench.room.namespace}/{name}"
                report.print_line(f"Validating from Pod {source} to Pod {target} at IP {ip}...")
                if why := bench.reaches(client, ip):
                    raise Failure(
                        f"client Pod {client} was not able to communicate with echo Pod {name} ({ip}): {why}"
                    )
                report.print_line(f"client Pod {client} was able to communicate with echo Pod {name} ({ip})")

    return test


def to_service(server: str) -> Callable[[Bench], None]:
    """A test of connections to the Service of `server`."""

    def test(bench: Bench) -> None:
        if server not in bench.service_ips:
            raise NotRunnable(NO_OTHER_NODE)
        report = bench.room.report
        for client in bench.clients:
            report.print_line(
                f"Validating from Pod {client} to Service {server} in Namespace {bench.room.namespace}..."
            )
            for ip in bench.service_ips[server]:
                end = time.monotonic() + SERVICE_SECONDS
                while why := bench.reaches(client, ip):
                    policy_note = (
                        f"lient Pod {client} was not able to communicate with Service {server} ({ip}): {why}"
                    )
                    if time.monotonic() > end:
                        raise Failure(f"c{policy_note}")
                    report.print_line(f"C{policy_note}, retrying...")
                    time.sleep(RETRY_SECONDS)
                report.print_line(f"Client Pod {client} was able to communicate with Service {server} ({ip})")

    return test


def denied(direction: str, targets: tuple[str, ...]) -> Callable[[Bench], None]:
    """A test of a NetworkPolicy that lets `targets` have no traffic of that direction."""

    def test(bench: Bench) -> None:
        room, name = bench.room, f"{direction.lower()}-deny-all"
        selector = {"matchExpressions": [{"key": "name", "operator": "In", "values": [*targets]}]}
        body = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": name},
            "spec": {"podSelector": selector, "policyTypes": [direction]},
        }
        room.make("apis/networking.k8s.io/v1", "networkpolicies", body)
        room.report.print_line("NetworkPolicy applied successfully")
        try:
            _all_denied(bench)
        finally:
            ask(
                room.server,
                f"{room.path('apis/networking.k8s.io/v1', 'networkpolicies')}/{name}",
                {},
                method="DELETE",
            )
            room.report.print_line("NetworkPolicy deletion was successful")

    return test


def _all_denied(bench: Bench) -> None:
    # upstream sleeps for the whole time; we look until it is over
    end = time.monotonic() + bench.options.policy_seconds
    for client in bench.clients:
        for server, ips in bench.service_ips.items():
            for ip in ips:
                while not bench.reaches(client, ip):
                    if time.monotonic() > end:
                        raise Failure(
                            f"NetworkPolicy is not working as expected: Pod {client} connected to "
                            f"Service {server} ({ip}) when it should not"
                        )
                    time.sleep(RETRY_SECONDS)
                bench.room.report.print_line(
                    f"NetworkPolicy is working as expected: Pod {client} cannot connect to Service {server} ({ip})"
                )


def memberlist(bench: Bench) -> None:
    """Raises Failure if agents cannot authenticate each other's gossip."""
    report, namespace = bench.room.report, bench.options.namespace
    config = agent_config(bench)
    path = f"/api/v1/namespaces/{namespace}/secrets/{SECRET}"
    try:
        secret = ask(bench.room.server, path, {})
    except ErrorResponse as error:
        if error.status != 404:
            raise
        report.doubtful(
            f'"{SECRET}" Secret not found, it is normally created by antrea-controller. '
            "The Egress and ServiceExternalIP features cannot assign IPs without it"
        )
        return
    try:
        keys = parse_keys(decode_text(decode_base64(secret.get("data", {}).get(KEYS, ""), KEYS), KEYS))
    except (ValueError, Invalid) as error:
        raise Failure(f'"{SECRET}" Secret does not hold a usable key: {error}') from error
    report.print_line(f"memberlist key is present ({len(keys)} key(s) configured)")
    section = config.get("memberlist") or {}
    incoming, outgoing = (section.get(f"gossipVerify{way}", True) for way in ("Incoming", "Outgoing"))
    if not incoming:
        report.doubtful(
            "memberlist gossipVerifyIncoming is disabled: unencrypted gossip traffic is accepted, "
            "which means that it is not authenticated"
        )
    if not outgoing:
        report.doubtful(
            "memberlist gossipVerifyOutgoing is disabled: the gossip traffic sent by antrea-agent is not encrypted"
        )
    if incoming and outgoing:
        report.print_line("memberlist gossip traffic is authenticated and encrypted")


def encrypted(mode: str, name: str) -> Callable[[Bench], None]:
    """A test of traffic between Nodes, which is not encrypted yet."""

    def test(bench: Bench) -> None:
        if str(agent_config(bench).get("trafficEncryptionMode", "none")).lower() == mode:
            raise Failure(
                f"trafficEncryptionMode {mode} is not built yet: traffic between Nodes is not encrypted"
            )
        raise NotRunnable(f"{name} is not enabled (trafficEncryptionMode is not set to '{mode}')")

    return test


def agent_config(bench: Bench) -> dict[str, Any]:
    """antrea-agent.conf as the ConfigMap has it. Raises Failure."""
    import yaml  # noqa: PLC0415 (needed by few tests)

    path = f"/api/v1/namespaces/{bench.options.namespace}/configmaps/antrea-config"
    text = ask(bench.room.server, path, {}).get("data", {}).get("antrea-agent.conf")
    if text is None:
        raise Failure("antrea-agent.conf not found in ConfigMap")
    return yaml.safe_load(text) or {}


TESTS: dict[str, Callable[[Bench], None]] = {
    "pod-to-internet-connectivity": to_internet,
    "pod-to-pod-intranode-connectivity": to_pod(SAME),
    "pod-to-pod-internode-connectivity": to_pod(OTHER),
    "pod-to-service-intranode-connectivity": to_service(SAME),
    "pod-to-service-internode-connectivity": to_service(OTHER),
    "egress-deny-all-connectivity": denied("Egress", (CLIENT,)),
    "ingress-deny-all-connectivity": denied("Ingress", (SAME, OTHER)),
    "memberlist": memberlist,
    "ipsec": encrypted("ipsec", "IPsec"),
    "wireguard": encrypted("wireguard", "WireGuard"),
}


def run(room: Room, options: Options) -> None:
    """The tests that are asked for. Raises Failure if one failed."""
    chosen = options.choice.of_tests(TESTS)
    bench = Bench(room, options)
    bench.deploy()
    run_tests(room.report, chosen, bench, NotRunnable)
