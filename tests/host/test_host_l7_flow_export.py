"""HTTP requests of annotated Pods in the agent as it runs: real packets, a real switch and Suricata; records come to a collector."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import NODE, OBJECTS, agent_process
from l7_flow_container import FlowEngineContainer
from pods_api import PodsApi
from test_host_traffic_control import ADDRESSES, connected, flows, ports

from antrea.apis.annotation import L7_EXPORT
from antrea.features.l7_flow_export.agent import TAP
from antrea.features.l7_flow_export.agent_part import FOLDER
from antrea.outside.ipfix.collector import Collector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agent_process import AgentProcess
    from certificate_world import ApiServer
    from conftest import Namespaces

    from antrea.apis.flow import FlowRecord

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("suricata_root")]
"""The root is made first, which takes minutes on a fresh machine."""
SERVICE = ("10.96.0.7", "fd96::7")
ROUTES = "ip route add default via 10.10.1.1; ip -6 route add default via fd74::1"
SERVER = """
import http.server, socket, threading
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(301)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *_): pass
server = Server(("::", 8080), Handler)
print("listening", flush=True)
server.serve_forever()
"""
CLIENT = """
import http.client, sys
client = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=20)
for path in sys.argv[3:]:
    client.putrequest("GET", path, skip_host=True)
    client.putheader("Host", "www.example.org")
    client.putheader("User-Agent", 'curl/7.68.0 "<b>')
    client.endheaders()
    client.getresponse().read()
client.close()
"""


def api() -> PodsApi:
    families = {"podCIDR": "10.10.1.0/24", "podCIDRs": ["10.10.1.0/24", "fd74::/64"]}
    server = PodsApi(
        {**OBJECTS, f"/api/v1/nodes/{NODE}": {**OBJECTS[f"/api/v1/nodes/{NODE}"], "spec": families}}
    )
    server.put("/api/v1/namespaces/shop", {"metadata": {}})
    for name in ADDRESSES:
        annotate(server, name, "")
    for number, ip in enumerate(SERVICE):
        endpoints(server, number, ip)
    return server


def annotate(server: ApiServer, name: str, value: str) -> None:
    meta = {"namespace": "shop", "uid": f"u-{name}", "annotations": {L7_EXPORT: value} if value else {}}
    spec = {"nodeName": NODE, "containers": []}
    server.put(f"/api/v1/pods/{name}", {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})


def endpoints(
    server: ApiServer,
    number: int,
    ip: str,
    *,
    name: str = "web",
    protocol: str = "TCP",
    ports: tuple[int, int] = (80, 8080),
) -> None:
    """A Service of Pod b at the first port; the second is the Pod's."""
    family, name = ("IPv4", "IPv6")[number], f"{name}{number}"
    port = {"name": "main", "port": ports[0], "protocol": protocol, "targetPort": ports[1]}
    spec = {"clusterIP": ip, "clusterIPs": [ip], "ipFamilies": [family], "ports": [port], "type": "ClusterIP"}
    server.put(f"/api/v1/services/{name}", {"metadata": {"namespace": "shop", "uid": name}, "spec": spec})
    labels = {"kubernetes.io/service-name": name}
    server.put(f"/apis/discovery.k8s.io/v1/endpointslices/{name}-1", {
        "metadata": {"namespace": "shop", "uid": f"{name}-1", "labels": labels}, "addressType": family,
        "ports": [{"name": "main", "port": ports[1], "protocol": protocol}],
        "endpoints": [{"addresses": [ADDRESSES["b"][number]], "nodeName": NODE, "conditions": {"ready": True}}],
    })  # fmt: skip


class World:
    """Pods a and b, where b serves; `got` has what came to the collector."""

    def __init__(
        self, netns: Namespaces, agent: AgentProcess, pods: dict[str, str], container: FlowEngineContainer
    ) -> None:
        self.netns, self.agent, self.pods, self.container = netns, agent, pods, container
        self.got: list[FlowRecord] = []

    async def ask(self, address: str, port: int, *paths: str, pod: str = "a") -> None:
        """Send requests in one connection."""
        words = [
            "ip",
            "netns",
            "exec",
            self.pods[pod],
            sys.executable,
            "-c",
            CLIENT,
            address,
            str(port),
            *paths,
        ]
        await asyncio.to_thread(subprocess.run, words, check=True, timeout=60)

    async def requests(self, path: str) -> tuple[FlowRecord, dict[str, Any]]:
        """The record with a request for this path."""
        await self.agent.until(lambda _: self._with(path), f"a record has {path}")
        found = self._with(path)[0]
        return found, json.loads(found.http_vals)

    def _with(self, path: str) -> list[FlowRecord]:
        return [one for one in self.got if f'"{path}"' in one.http_vals]


@contextlib.asynccontextmanager
async def world(netns: Namespaces, tmp_path: Path) -> AsyncIterator[World]:
    got: list[FlowRecord] = []
    listening: asyncio.Queue[int] = asyncio.Queue()
    serving = asyncio.create_task(Collector(got.append).serve("127.0.0.1", 0, "tcp", listening.put_nowait))
    with tempfile.TemporaryDirectory(prefix="l7f-", dir="/tmp") as room:
        folder = Path(room) / FOLDER
        folder.mkdir()
        config = {
            "featureGates": {"FlowExporter": True, "L7FlowExporter": True}, "cniSocket": f"{room}/cni.sock",
            "flowExporter": {
                "enable": True, "flowCollectorAddr": f"127.0.0.1:{await listening.get()}:tcp", "flowPollInterval": "1s",
                "activeFlowExportTimeout": "1s", "idleFlowExportTimeout": "1s",
            },
        }  # fmt: skip
        with FlowEngineContainer(folder) as container:
            async with agent_process(netns, tmp_path, dict(os.environ), config, api()) as agent:
                pods = await connected(netns, agent)
                for space in pods.values():
                    netns.sh(ROUTES, space)
                found = World(netns, agent, pods, container)
                found.got = got
                with netns.serving(pods["b"], SERVER):
                    yield found
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.wide
async def test_requests_of_annotated_pods_come_with_the_records_of_their_connections(
    netns: Namespaces, tmp_path: Path
) -> None:
    """Nothing runs before; of Services, too; after the annotation is gone, nothing runs any more."""
    async with world(netns, tmp_path) as found:
        agent, container = found.agent, found.container
        assert container.engines() == []
        assert TAP not in ports(agent)
        annotate(agent.api, "a", "Egress")
        await agent.until(
            lambda _: flows(agent, "priority=190", "TrafficControl", "reg9"), "packets are copied"
        )
        await agent.until(lambda _: container.engines(), "the engine runs")
        for six in (0, 1):
            await told(found, six)
        annotate(agent.api, "a", "")
        await agent.until(lambda _: not flows(agent, "reg9"), "nothing is copied any more")
        await agent.until(lambda _: not container.engines(), "the engine has ended")
        await agent.until(lambda _: TAP not in ports(agent), "its port is gone")


async def told(found: World, six: int) -> None:
    """Requests to the Pod and to the Service, each with its answer."""
    pod, service = ADDRESSES["b"][six], SERVICE[six]
    await found.agent.until(lambda _: engine_reads(found, pod), "the engine reads requests")
    await found.ask(pod, 8080, f"/pod/{six}", f"/again/{six}")
    record, requests = await found.requests(f"/again/{six}")
    assert (record.source_pod_name, record.destination_pod_name, record.app_protocol_name) == (
        "a",
        "b",
        "http",
    )
    assert requests["1"] == {
        "hostname": "www.example.org", "url": f"/again/{six}", "http_user_agent": 'curl/7.68.0 "<b>',
        "http_content_type": "text/html", "http_method": "GET", "protocol": "HTTP/1.1", "status": 301, "length": 2,
    }  # fmt: skip
    await found.ask(service, 80, f"/service/{six}")
    record, requests = await found.requests(f"/service/{six}")
    assert (record.destination_ip, record.destination_cluster_ip) == (pod, service)
    assert requests["0"]["status"] == 301


async def engine_reads(found: World, address: str) -> bool:
    await found.ask(address, 8080, "/first")
    await asyncio.sleep(1)
    return any(one.http_vals for one in found.got)


@pytest.mark.wide
async def test_only_connections_of_the_direction_that_is_asked_for_are_read(
    netns: Namespaces, tmp_path: Path
) -> None:
    async with world(netns, tmp_path) as found:
        annotate(found.agent.api, "b", "ingress")
        await found.agent.until(lambda _: found.container.engines(), "the engine runs")
        for address in ADDRESSES["b"]:
            await found.agent.until(lambda _: engine_reads(found, address), "the engine reads requests")  # noqa: B023
        with netns.serving(found.pods["a"], SERVER):
            await found.ask(ADDRESSES["a"][0], 8080, "/not-asked-for", pod="b")
        await found.ask(ADDRESSES["b"][0], 8080, "/asked-for")
        await found.requests("/asked-for")
        assert not any("/not-asked-for" in one.http_vals for one in found.got)
