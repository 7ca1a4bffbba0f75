"""A lab with all Services of the table, served by AntreaProxy or by kube-proxy, and what comes of asking for one."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_node import pod_namespace
from own_lab import own_lab
from quiet_pod import quiet_pods
from service_rows import FAMILY, PLACES, PORTS, REFUSED, ROWS, SILENT, service, slice_of

from lab import cluster, namespace
from lab.images import AGNHOST
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from service_rows import End, Row

    from lab.cluster import Lab

OFF = {"antreaProxy": {"enable": False}}
DISTRIBUTED = {"featureGates": {"PreferSameTrafficDistribution": True}}
SIDES = {
    "antrea": Settings(nodes=2, family=FAMILY, kube_proxy="none", proxy_all=True, agent=DISTRIBUTED),
    "nftables": Settings(nodes=2, family=FAMILY, kube_proxy="nftables", agent=OFF),
    "iptables": Settings(nodes=2, family=FAMILY, kube_proxy="iptables", agent=OFF),
}
"""By who serves."""
TRIES, SECONDS = 14, 2
CLUSTER_PORTS = {"cluster": 80, "second": 81, "unserved": 83}
"""At a ClusterIP; the last is no Service's."""
ZONE = "topology.kubernetes.io/zone"
SERVER = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {LABEL: "yes", row: "yes"}}
spec:
  nodeName: NODE
  hostNetwork: HOST
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: IMAGE
    imagePullPolicy: Never
    args: [netexec, --http-port=PORT, --udp-port=PORT]
    ports: [{name: http, containerPort: PORT}]
    readinessProbe: {tcpSocket: {port: PROBED}, periodSeconds: 1}
---
"""
UDP_CLIENT = f"""
import errno, socket, sys
ip = sys.argv[1].strip("[]")
with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_DGRAM) as client:
    client.settimeout(float(sys.argv[3]))
    client.connect((ip, int(sys.argv[2])))
    try:
        client.send(b"hostname")
        print(client.recv(99).decode(), end="")
    except OSError as no:
        print({REFUSED!r} if no.errno in (errno.ECONNREFUSED, errno.EPERM) else {SILENT!r}, end="")
"""
"""A rule of the sender's own host that rejects is EPERM to who sends."""
LABELS = {"a": "server", "b": "server"}
"""Of Pods that have another one than their name."""


class World(NamedTuple):
    """A lab with all Services of ROWS, by the name of who serves them."""

    side: str

    lab: Lab
    pods: Mapping[str, str]
    pods6: Mapping[str, str]
    specs: Mapping[str, Mapping[str, Any]]

    def place(self, row: Row, where: str) -> str:
        """Address and port."""
        spec = self.specs[row.name]
        if where in CLUSTER_PORTS:
            return target(spec["clusterIP"], CLUSTER_PORTS[where])
        if where == "external":
            return target(spec["externalIPs"][0], 80)
        if where == "balanced":
            return target(row.ingress[0]["ip"], 80)
        return target(self.node(where, ipv6=row.ipv6), spec["ports"][0]["nodePort"])

    def node(self, name: str, *, ipv6: bool = False) -> str:
        return self.lab.topology.machine(name).address("eth0", 6 if ipv6 else 4)

    def slice(self, row: Row, end: End) -> dict[str, Any]:
        """An EndpointSlice of the row's family."""
        return slice_of(row, end, self.pods6 if row.ipv6 else self.pods)

    def inside(self, who: str, words: list[str]) -> list[str]:
        """The command, in the network of a Pod or a machine."""
        if who in self.pods:
            return [*pod_namespace(self.lab, PLACES.get(who, "node-1"), self.pods[who]), *words]
        return cluster.enter(self.lab, who, words)

    def once(self, who: str, target: str, *, udp: bool = False) -> str:
        """A Pod's name, REFUSED or SILENT."""
        if udp:
            client = [sys.executable, "-c", UDP_CLIENT, *target.rsplit(":", 1), str(SECONDS)]
            return subprocess.run(self.network(who, client), stdout=-1, text=True, check=True).stdout
        words = ["curl", "-sS", "-g", "--max-time", str(SECONDS), f"http://{target}/hostname"]
        done = subprocess.run(self.inside(who, words), capture_output=True, text=True, check=False)
        return done.stdout or (REFUSED if done.returncode == 7 else SILENT)

    def network(self, who: str, words: list[str]) -> list[str]:
        """The command, with files of this machine, in the network of a Pod or a machine."""
        if who in self.pods:
            return self.inside(who, words)
        return namespace.inside(namespace.path(self.lab.record, who), words)

    def asked(self, who: str, target: str, *, udp: bool = False) -> frozenset[str] | str:
        """What comes of several connections: names, or what is the same of all."""
        first = self.once(who, target, udp=udp)
        if first in (REFUSED, SILENT):
            return first
        with ThreadPoolExecutor(4) as pool:
            return frozenset(pool.map(lambda _: self.once(who, target, udp=udp), range(TRIES))) | {first}


def target(ip: str, port: int) -> str:
    """As in a URL."""
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


@contextmanager
def serving(side: str) -> Iterator[World]:
    """As long as the block lasts."""
    with own_lab(f"api-{side[:2]}", SIDES[side]) as lab, servers_and_client(lab) as (pods, pods6):
        for number, name in enumerate(("node-1", "node-2"), 1):
            lab.api.kubectl("label", "node", name, f"{ZONE}=z{number}")
        first = lab.topology.machine("node-1")
        gateway = namespace.path(lab.record, "gateway")
        ways = (("198.51.100.0/24", 4), ("2001:db8:51::/64", 6))
        routes = [
            f"ip route replace {network} via {first.address('eth0', family)}" for network, family in ways
        ]
        namespace.script(lab.record, gateway, routes)
        items = [service(row) for row in ROWS]
        items += [slice_of(row, end, pods6 if row.ipv6 else pods) for row in ROWS for end in row.ends]
        lab.api.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        for row in ROWS:
            if row.ingress:
                given = json.dumps({"status": {"loadBalancer": {"ingress": row.ingress}}})
                words = ("patch", "service", row.name, "--subresource=status", "--type=merge", "-p", given)
                lab.api.kubectl(*words)
        listed = lab.api.items("/api/v1/namespaces/default/services")
        specs = {one["metadata"]["name"]: one["spec"] for one in listed}
        for row in ROWS:
            if ("outside", "cluster") in row.answers:
                way = f"via {first.address('eth0', 6 if row.ipv6 else 4)}"
                route = f"ip route replace {specs[row.name]['clusterIP']} {way}"
                namespace.script(lab.record, gateway, [route])
        yield World(side, lab, pods, pods6, specs)


@contextmanager
def servers_and_client(lab: Lab) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Servers at different ports; addresses by name, in IPv4 with those of the client, and in IPv6."""
    text = "".join(
        SERVER.replace("NAME", name)
        .replace("LABEL", LABELS.get(name, name))
        .replace("NODE", PLACES[name])
        .replace("HOST", "true" if name == "host" else "false")
        .replace("PROBED", "1" if name == "late" else str(port))
        .replace("PORT", str(port))
        for name, port in PORTS.items()
    )
    lab.api.apply(text.replace("IMAGE", AGNHOST))

    def addresses(index: int = 0) -> dict[str, str]:
        pods = lab.api.items("/api/v1/namespaces/default/pods?labelSelector=row%3Dyes")
        given = {pod["metadata"]["name"]: pod["status"].get("podIPs", []) for pod in pods}
        return {name: ips[index]["ip"] if len(ips) == 2 else "" for name, ips in given.items()}

    with quiet_pods(lab, {"client": "node-1"}) as client:
        ready = [f"pod/{name}" for name in PORTS if name != "late"]
        lab.api.kubectl("wait", "--for=condition=Ready", *ready, "--timeout=180s", seconds=200)
        wait_for("addresses of all Pods", lambda: all(addresses().values()), seconds=60)
        yield client | addresses(), addresses(1)
