"""NodePortLocal in the agent as it runs: annotations, Events and ports, over restarts and changes of its range."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

from agent_process import NODE_IP, OBJECTS, agent_process
from certificate_world import ApiServer

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import web
    from conftest import Namespaces

ANNOTATION = "nodeportlocal.antrea.io"
PODS = "/api/v1/pods"


class PodsApi(ApiServer):
    """Pods are kept in one collection, whatever their Namespace."""

    def _list(self, path: str, request: web.Request) -> web.Response:
        return super()._list(path, request.clone(rel_url=request.rel_url.update_query(fieldSelector="")))

    def _write(self, method: str, path: str, body: dict[str, Any]) -> web.Response:
        if path.startswith("/api/v1/namespaces/shop/pods/"):
            path = f"{PODS}/{path.split('/')[6]}"
            held, written = (one["metadata"]["annotations"] for one in (self.objects[path], body))
            for key in [key for key, value in written.items() if value is None]:
                del written[key], held[key]
        return super()._write(method, path, body)

    def pod(self, name: str, ip: str, annotation: str = "", label: str = "web") -> None:
        """A Pod of the Node that runs."""
        meta = {"namespace": "shop", "uid": f"u-{name}", "labels": {"app": label}}
        annotations = {ANNOTATION: annotation} if annotation else {}
        self.put(f"{PODS}/{name}", {
            "metadata": {**meta, "annotations": annotations}, "spec": {"nodeName": "n1", "containers": []},
            "status": {"phase": "Running", "podIPs": [{"ip": ip}]},
        })  # fmt: skip

    def ports(self, name: str) -> list[int]:
        """Of the Node, as the annotation has them."""
        text = self.objects[f"{PODS}/{name}"]["metadata"].get("annotations", {}).get(ANNOTATION)
        return [one["nodePort"] for one in json.loads(text or "[]")]

    def events(self, reason: str) -> list[tuple[str, str]]:
        found = [one for path, one in self.objects.items() if "/events/" in path]
        return sorted(
            (one["involvedObject"]["name"], one["message"]) for one in found if one["reason"] == reason
        )


def api() -> PodsApi:
    """With an annotated Service."""
    server = PodsApi(OBJECTS)
    meta = {"namespace": "shop", "annotations": {f"{ANNOTATION}/enabled": "true"}}
    ports = [{"port": 80, "protocol": "TCP", "targetPort": 8080}]
    spec = {"type": "ClusterIP", "selector": {"app": "web"}, "ipFamilies": ["IPv4"], "ports": ports}
    server.put("/api/v1/services/web", {"metadata": meta, "spec": spec})
    return server


def config(ports: str) -> dict[str, Any]:
    return {"nodePortLocal": {"enable": True, "portRange": ports}}


def elements(netns: Namespaces) -> str:
    return netns.run("nft list map inet antrea node-port-local").stdout


def listening(netns: Namespaces) -> set[int]:
    lines = netns.sh("ss -Hltn4").splitlines()
    return {int(line.split()[3].rpartition(":")[2]) for line in lines} & set(range(61000, 62001))


def mapping(port: int) -> str:
    return json.dumps(
        [{"podPort": 8080, "nodeIP": NODE_IP, "nodePort": port, "protocol": "tcp", "ipFamily": "IPv4"}],
        separators=(",", ":"),
    )


async def test_pods_have_ports_that_outlive_the_agent_and_go_with_what_asks_for_them(
    netns: Namespaces, tmp_path: Path
) -> None:
    server = api()
    server.pod("a", "10.10.1.5")
    server.pod("b", "10.10.1.6", mapping(61050))
    server.pod("c", "10.10.1.7", mapping(61000), label="other")
    async with agent_process(netns, tmp_path, os.environ, config("61000-61100"), server) as agent:
        # the port in the annotation of `c`, which asks for none, is nobody's before it is free for sure
        await agent.until(lambda _: server.ports("a") == [61001], "a has the first free port")
        await agent.until(lambda _: server.ports("c") == [], "c has lost its annotation")
        text = server.objects[f"{PODS}/a"]["metadata"]["annotations"][ANNOTATION]
        assert text == mapping(61001)
        assert server.ports("b") == [61050]
        assert f"{PODS}/b" not in server.writes
        assert listening(netns) == {61001, 61050}
        assert "tcp . 61050 : 10.10.1.6 . 8080" in elements(netns)
        await agent.until(lambda agent: agent.ready(), "the agent is ready")
        info = json.loads((await agent.get("/agentinfo"))[1])
        assert info["nodePortLocalPortRange"] == "61000-61100"
        count = 'antrea_agent_node_port_local_port_count{protocol="tcp",ip_family="IPv4"} 2\n'
        assert count in (await agent.get("/metrics"))[1]
        # somebody takes the annotation away, and it comes back
        server.pod("a", "10.10.1.5")
        await agent.until(lambda _: server.ports("a") == [61001], "a has its annotation again")
        assert agent.process is not None
        agent.process.send_signal(signal.SIGKILL)
        await agent.process.wait()
    assert "61001" in elements(netns)
    assert not server.events("NodePortLocalPortChanged")
    # of two Pods that name one port it is that of the one that nftables lead to
    server.pod("0", "10.10.1.4", mapping(61001))
    async with again(netns, tmp_path, server, "61000-61100") as agent:
        await agent.until(lambda _: len(listening(netns)) == 3, "all have their ports")
        await agent.until(lambda _: server.ports("0") not in ([61001], []), "0 has another one")
        assert (server.ports("a"), server.ports("b")) == ([61001], [61050])
        await agent.until(lambda _: server.events("NodePortLocalPortChanged"), "an Event says so")
        ((name, message),) = server.events("NodePortLocalPortChanged")
        port = server.ports("0")[0]
        assert (name, message) == ("0", f"Port 8080/tcp (IPv4) is at Node port {port} now: the one before is that of shop/a")  # fmt: skip
        server.drop(f"{PODS}/0")
        server.drop("/api/v1/services/web")
        await agent.until(lambda _: not server.ports("a") + server.ports("b"), "no annotation is left")
        await agent.until(lambda _: "tcp" not in elements(netns), "nothing leads to Pods")
        await agent.until(lambda _: not listening(netns), "all ports are free")


async def test_a_range_that_changes_or_is_exhausted_is_told_where_the_user_looks(
    netns: Namespaces, tmp_path: Path
) -> None:
    server = api()
    server.pod("a", "10.10.1.5", mapping(61000))
    server.pod("b", "10.10.1.6")
    server.pod("c", "10.10.1.7")
    with netns.serving(netns.home, TAKEN):
        async with agent_process(netns, tmp_path, os.environ, config("62000-62002"), server) as agent:
            await agent.until(lambda _: server.events("NodePortLocalPortsExhausted"), "an Event says so")
            await agent.until(lambda _: server.ports("b"), "b has a port")
            await agent.until(lambda _: server.events("NodePortLocalPortChanged"), "an Event says so")
            await agent.until(lambda _: server.ports("a") != [61000], "a has another one")
            assert [server.ports(name) for name in "abc"] == [[62000], [62002], []]
            assert server.events("NodePortLocalPortChanged") == [
                ("a", "Port 8080/tcp (IPv4) is at Node port 62000 now: the one before is outside of portRange 62000-62002")
            ]  # fmt: skip
            assert server.events("NodePortLocalPortsExhausted") == [
                ("c", f"Port 8080/tcp (IPv4) is not reached at this Node: {EXHAUSTED}")
            ]
            await agent.until(lambda agent: agent.ready(), "the agent is ready")
            conditions = json.loads((await agent.get("/agentinfo"))[1])["agentConditions"]
            (found,) = [one for one in conditions if one["type"] == "NodePortLocalPortsExhausted"]
            assert found["message"].startswith("no port of 62000-62002 is free for Pods shop/c: ")
            server.drop(f"{PODS}/b")
            await agent.until(lambda _: server.ports("c") == [62002], "c has the port that became free")
            conditions = json.loads((await agent.get("/agentinfo"))[1])["agentConditions"]
            assert "NodePortLocalPortsExhausted" not in {one["type"] for one in conditions}


EXHAUSTED = (
    "no port of 62000-62002 is free (tcp, IPv4): "
    "other programs have those that no Pod has, the last one is taken: Address already in use"
)
TAKEN = """
import socket
kept = socket.create_server(("0.0.0.0", 62001))
print("listening", flush=True)
kept.accept()
"""


def again(netns: Namespaces, folder: Path, server: PodsApi, ports: str) -> Any:
    """Another start on the same Node."""
    netns.sh("ip link del eth0")
    return agent_process(netns, folder, os.environ, config(ports), server)
