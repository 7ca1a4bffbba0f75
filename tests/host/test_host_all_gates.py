"""One agent and its controller with all built gates on: the shortest packet test of each feature, beside all others.

Objects of all features stand at the same time, among them one TrafficControl that redirects and selects no Pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import NODE, NODE_IP, agent_process
from controller_program import controller_program, kubeconfig
from test_host_traffic_control import (
    ADDRESSES,
    BOTH_WAYS,
    CABLE,
    api,
    connected,
    control,
    endpoints,
    flows,
    marked,
    ping,
    reaches,
    receiver,
)

from antrea.apis.annotation import L7_EXPORT
from antrea.features.framework.gate import GATES
from antrea.features.l7_flow_export.agent import TAP
from antrea.features.registry.webhooks import WATCHED as READ_BY_WEBHOOKS
from antrea.outside.ipfix.collector import Collector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from agent_process import AgentProcess
    from conftest import Namespaces
    from pods_api import PodsApi

    from antrea.apis.flow import FlowRecord

pytestmark = pytest.mark.timeout(300)
CRD = "/apis/crd.antrea.io"
SERVICE, OUTSIDE, EGRESS_IP, SERVICE_IP = "10.96.0.7", "192.0.2.10", "192.0.2.77", "192.0.2.88"
POD_PORT, NODE_PORT_LOCAL, NODE_ONLY = 8080, 61000, 9090
SERVER = f"""
import http.server, socket, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.client_address[0].encode())
    def log_message(self, *_): pass
for port in ({POD_PORT}, {NODE_ONLY}):
    server = http.server.ThreadingHTTPServer(("0.0.0.0", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
print("listening", flush=True)
threading.Event().wait()
"""
"""Answers with the address that the request comes from."""
CLIENT = r"""
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)
connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
print(connection.makefile("rb").read().rpartition(b"\r\n\r\n")[2].decode())
"""
PYTHON = f"{sys.executable} -I -S"
"""An interpreter that starts in a tenth of the time, with modules of Python alone."""


def gates(component: str) -> dict[str, bool]:
    """All that are built, but for the one of machines outside the cluster."""
    return {
        gate.name: True
        for gate in GATES
        if gate.built and component in gate.components and gate.name != "ExternalNode"
    }


class World:
    """Pods a and b of the Node, where b serves, and a host outside."""

    def __init__(self, netns: Namespaces, agent: AgentProcess, pods: dict[str, str], outside: str) -> None:
        self.netns, self.agent, self.pods, self.outside = netns, agent, pods, outside
        self.records: list[FlowRecord] = []

    def put(self, path: str, spec: dict[str, Any], **more: Any) -> None:
        name = path.rpartition("/")[2]
        meta = {"uid": f"u-{name}", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z", **more}
        self.agent.api.put(path, {"metadata": meta, "spec": spec})

    def asks(self, space: str, address: str, port: int) -> str:
        """The address that the server sees, or an empty text if it does not answer."""
        self.agent.switch.revalidate()
        done = self.netns.run(f"{PYTHON} -c '{CLIENT}' {address} {port}", space)
        return done.stdout.strip() if done.returncode == 0 else ""

    async def until(self, true: Callable[[], object], what: str) -> None:
        """Wait until this is true; a thread finds out, while the API serves the agent and the controller."""
        await self.agent.until(lambda _: asyncio.to_thread(true), what)

    async def answers(self, space: str, address: str, port: int, seen: str, what: str) -> None:
        await self.until(lambda: self.asks(space, address, port) == seen, what)


def cluster() -> PodsApi:
    """Pods with addresses, of which a asks for the export of its requests, and a Service of Pod b."""
    server = api()
    for name, ips in ADDRESSES.items():
        pod = server.objects[f"/api/v1/pods/{name}"]
        meta = {**pod["metadata"], "annotations": {L7_EXPORT: "both"} if name == "b" else {}}
        status = {"phase": "Running", "podIP": ips[0], "podIPs": [{"ip": ip} for ip in ips]}
        server.put(f"/api/v1/pods/{name}", {**pod, "metadata": meta, "status": status})
    ports = [{"name": "main", "port": 80, "protocol": "TCP", "targetPort": POD_PORT}]
    spec: dict[str, Any] = {"clusterIP": SERVICE, "clusterIPs": [SERVICE], "ipFamilies": ["IPv4"]}
    spec |= {"selector": {"app": "b"}, "type": "LoadBalancer", "ports": ports}
    annotations = {
        "nodeportlocal.antrea.io/enabled": "true",
        "service.antrea.io/external-ip-pool": "services",
    }
    meta = {"namespace": "shop", "uid": "web", "annotations": annotations}
    given = {"loadBalancer": {"ingress": [{"ip": SERVICE_IP}]}}
    server.put("/api/v1/services/web", {"metadata": meta, "spec": spec, "status": given})
    server.put("/apis/discovery.k8s.io/v1/endpointslices/web-1", {
        "metadata": {"namespace": "shop", "uid": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": "main", "port": POD_PORT, "protocol": "TCP"}],
        "endpoints": [{"addresses": [ADDRESSES["b"][0]], "nodeName": NODE, "conditions": {"ready": True}}],
    })  # fmt: skip
    server.put(f"{CRD}/v1beta1/externalippools/services", {
        "metadata": {"uid": "pool"}, "spec": {"ipRanges": [{"start": SERVICE_IP, "end": SERVICE_IP}], "nodeSelector": {}},
    })  # fmt: skip
    # without it no policy is enforced on the Node, which could be cut off
    server.put("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes", {
        "metadata": {"namespace": "default", "uid": "kube", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4", "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["192.0.2.200"], "conditions": {"ready": True}}],
    })  # fmt: skip
    nobody = {"podSelector": {"matchLabels": {"app": "nobody"}}}
    gone = {"device": {"name": "gone0"}}
    control(server, "idle", appliedTo=nobody, action="Redirect", targetPort=gone)
    return server


@contextlib.asynccontextmanager
async def world(netns: Namespaces, folder: Path) -> AsyncIterator[World]:
    server, records = cluster(), list["FlowRecord"]()
    listening: asyncio.Queue[int] = asyncio.Queue()
    serving = asyncio.create_task(
        Collector(records.append).serve("127.0.0.1", 0, "tcp", listening.put_nowait)
    )
    (folder / "controller").mkdir()
    (folder / "tmp").mkdir()
    async with contextlib.AsyncExitStack() as last:
        last.callback(serving.cancel)
        running = await last.enter_async_context(
            controller_program(folder / "controller", server, gates("controller"))
        )
        config = {
            "featureGates": gates("agent"),
            "antreaClientConnection": {"kubeconfig": kubeconfig(folder / "antrea.kubeconfig", *running)},
            "antreaProxy": {"proxyAll": True},
            "nodePortLocal": {"enable": True, "portRange": f"{NODE_PORT_LOCAL}-{NODE_PORT_LOCAL + 10}"},
            "flowExporter": {
                "enable": True, "flowCollectorAddr": f"127.0.0.1:{await listening.get()}:tcp", "flowPollInterval": "1s",
                "activeFlowExportTimeout": "1s", "idleFlowExportTimeout": "1s",
            },
        }  # fmt: skip
        env = {**os.environ, "POD_NAME": "antrea-agent-x", "TMPDIR": str(folder / "tmp")}
        agent = await last.enter_async_context(agent_process(netns, folder, env, config, server))
        outside = netns.make()
        netns.sh(f"ip link set far0 netns {outside}; ip addr add {EGRESS_IP}/24 dev eth0")
        netns.sh(
            f"ip addr add {OUTSIDE}/24 dev far0; ip link set far0 up; ethtool -K far0 tx off >/dev/null",
            outside,
        )
        pods = await connected(netns, agent)
        for space in pods.values():
            netns.sh("ip route add default via 10.10.1.1", space)
        for space in (pods["b"], outside):
            last.enter_context(netns.serving(space, SERVER))
        found = World(netns, agent, pods, outside)
        found.records = records
        yield found


async def test_every_feature_does_its_work_beside_all_others(netns: Namespaces, tmp_path: Path) -> None:
    """Each step leaves its objects in place for those that follow, but for what would drop packets."""
    async with world(netns, tmp_path) as one:
        for step in (
            pods_are_connected, services_are_served, ports_of_the_node_lead_to_pods, packets_leave_by_the_egress_ip,
            mirrors_get_copies, requests_are_copied, records_are_exported, packets_are_captured, policies_are_enforced,
            policies_protect_the_node, packets_are_redirected,
        ):  # fmt: skip
            began = time.monotonic()
            await step(one)
            print(f"{step.__name__}: {time.monotonic() - began:.1f} s")
        no_object_is_watched_twice(one)


def no_object_is_watched_twice(one: World) -> None:
    """Watches that the API server holds: one for each path and selector in the agent and in each process of the controller."""
    agent, controller = sorted(
        one.agent.api.open_watches().values(), key=lambda watches: ("/api/v1/pods", "") in watches
    )
    assert ("/api/v1/pods", f"fieldSelector=spec.nodeName={NODE}") in agent
    assert {watch for watch, count in agent.items() if count > 1} == set()
    # what its webhooks read is watched by the process that serves them, too
    served = {(watched.path, watched.field_selector) for watched in READ_BY_WEBHOOKS}
    assert {watch: count for watch, count in controller.items() if count > 1} == dict.fromkeys(served, 2)


async def pods_are_connected(one: World) -> None:
    """Though a TrafficControl redirects what no Pod is."""
    assert flows(one.agent, "table=TrafficControl", "actions=drop") == []
    for address in ADDRESSES["a"]:
        assert reaches(one.netns, one.pods["b"], address, one.agent)


async def services_are_served(one: World) -> None:
    await one.answers(one.pods["a"], SERVICE, 80, ADDRESSES["a"][0], "the ClusterIP answers")
    await one.until(lambda: one.asks(one.outside, SERVICE_IP, 80), "the external IP answers")


async def ports_of_the_node_lead_to_pods(one: World) -> None:
    await one.until(lambda: one.asks(one.outside, NODE_IP, NODE_PORT_LOCAL), "the port of Pod b answers")


async def packets_leave_by_the_egress_ip(one: World) -> None:
    applied = {"podSelector": {"matchLabels": {"app": "a"}}}
    one.put(f"{CRD}/v1beta1/egresses/out", {"appliedTo": applied, "egressIP": EGRESS_IP})
    await one.answers(one.pods["a"], OUTSIDE, POD_PORT, EGRESS_IP, "Pod a leaves with its Egress IP")


async def mirrors_get_copies(one: World) -> None:
    control(one.agent.api, "mirror", action="Mirror", targetPort={"ovsInternal": {"name": "tap0"}})
    await one.until(lambda: mirroring(one), "the flows of Pod a mirror")
    with receiver("tap0") as mirror:
        for address in ADDRESSES["a"]:
            assert ping(one.netns, one.agent, one.pods["b"], address)
        assert endpoints(mirror) == BOTH_WAYS


def mirroring(one: World) -> bool:
    """Whether the flows of Pod a name the port of the TrafficControl, which is there."""
    number = one.agent.switch.vsctl("--if-exists", "get", "interface", "tap0", "ofport").strip()
    return number.isdigit() and len([flow for flow in marked(one.agent) if f"{int(number):#x}" in flow]) == 2


async def requests_are_copied(one: World) -> None:
    """To the port of the engine, which is missing here and is named for that."""
    await one.until(lambda: flows(one.agent, "priority=190", "TrafficControl", "reg9"), "packets are copied")
    with receiver(TAP) as tap:
        assert one.asks(one.outside, NODE_IP, NODE_PORT_LOCAL)
        assert one.netns.run(f"ip link show {TAP}").returncode == 0
        await one.until(lambda: has_tcp(tap), "the engine's port gets copies")


def has_tcp(tap: socket.socket) -> bool:
    """Whether a TCP segment comes by this port at once."""
    while select.select([tap], [], [], 0)[0]:
        frame = tap.recv(2048)
        if frame[12:14] == b"\x08\x00" and frame[23] == socket.IPPROTO_TCP:
            return True
    return False


async def records_are_exported(one: World) -> None:
    def recorded() -> bool:
        return any((r.source_pod_name, r.destination_pod_name) == ("a", "b") for r in one.records)

    assert one.asks(one.pods["a"], ADDRESSES["b"][0], POD_PORT)
    await one.until(recorded, "the connection has a record")


async def packets_are_captured(one: World) -> None:
    path = f"{CRD}/v1alpha1/packetcaptures/echo"
    source, destination = ({"pod": {"namespace": "shop", "name": name}} for name in ("a", "b"))
    first = {"firstN": {"number": 1}}
    one.put(path, {
        "source": source, "destination": destination, "captureConfig": first, "packet": {"protocol": "ICMP"}, "timeout": 60,
    })  # fmt: skip

    def captured() -> bool:
        ping(one.netns, one.agent, one.pods["a"], ADDRESSES["b"][0])
        return bool(one.agent.api.objects[path].get("status", {}).get("numberCaptured"))

    await one.until(captured, "a packet is captured")


async def policies_are_enforced(one: World) -> None:
    path = "/apis/networking.k8s.io/v1/networkpolicies/closed"
    one.put(
        path, {"podSelector": {"matchLabels": {"app": "b"}}, "policyTypes": ["Ingress"]}, namespace="shop"
    )
    await one.until(lambda: not one.asks(one.pods["a"], SERVICE, 80), "Pod b is isolated")
    assert not reaches(one.netns, one.pods["a"], ADDRESSES["b"][0], one.agent)
    one.agent.api.drop(path)
    await one.answers(one.pods["a"], SERVICE, 80, ADDRESSES["a"][0], "Pod b is open again")


async def policies_protect_the_node(one: World) -> None:
    path = f"{CRD}/v1beta1/clusternetworkpolicies/node"
    with node_server():
        await one.until(lambda: opens(one, NODE_ONLY), "the Node answers")
        drop = {"action": "Drop", "ports": [{"protocol": "TCP", "port": NODE_ONLY}]}
        one.put(path, {"priority": 1, "appliedTo": [{"nodeSelector": {}}], "ingress": [drop]})
        await one.until(lambda: not opens(one, NODE_ONLY), "the Node does not")
        await one.until(lambda: status_of(one, path) == "Realized", "the policy is realized")
    one.agent.api.drop(path)


def status_of(one: World, path: str) -> str:
    return str(one.agent.api.objects[path].get("status", {}).get("phase", ""))


@contextlib.contextmanager
def node_server() -> Any:
    # with the usual backlog of 128, that is so many connections that nobody takes, it would close by itself
    with socket.create_server((NODE_IP, NODE_ONLY), backlog=4096):
        yield


def opens(one: World, port: int) -> bool:
    program = f'import socket; socket.create_connection(("{NODE_IP}", {port}), 1)'
    return one.netns.run(f"{PYTHON} -c '{program}'", one.outside).returncode == 0


async def packets_are_redirected(one: World) -> None:
    """By a cable that leads back; other Pods' connections are not touched."""
    one.agent.api.drop(f"{CRD}/v1alpha2/trafficcontrols/mirror")
    target, back = {"device": {"name": "target1"}}, {"device": {"name": "return1"}}
    control(one.agent.api, "redirect", action="Redirect", targetPort=target, returnPort=back)
    await one.until(lambda: len(flows(one.agent, "TrafficControl", "actions=drop")) == 2, "Pod a is closed")
    assert not ping(one.netns, one.agent, one.pods["b"], ADDRESSES["a"][0])
    assert one.asks(one.outside, SERVICE_IP, 80), "Pod b is open"
    one.netns.sh(CABLE)
    await one.until(lambda: flows(one.agent, "in_port=return1", "table=Classifier"), "packets may come back")
    await one.until(lambda: ping(one.netns, one.agent, one.pods["b"], ADDRESSES["a"][0]), "Pod a answers")
