"""A resolver on the Node, set up as NodeLocal DNSCache is: first connections to names are judged by the rules on them, of Pods and of the Node."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import traffic
import yaml
from agent_node import pod_namespace
from own_lab import own_lab
from quiet_pod import quiet_pods

from antrea.features.node_policy.fqdn import QUEUE
from lab import namespace, node
from lab.images import COREDNS
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = pytest.mark.wide
SETTINGS = Settings(
    nodes=1,
    family="dual",
    agent={
        "featureGates": {"NodeNetworkPolicy": True},
        "antreaProxy": {"skipServices": ["kube-system/kube-dns"]},
    },
)
NODE = "node-1"
CACHE = {4: "169.254.20.10", 6: "fd00:90::10"}
SITES = {4: "198.51.100.0/24", 6: "2001:db8:9::/64"}
"""Addresses of names: `n7.*` has the 7th. All are the host outside."""
KINDS = {4: "A", 6: "AAAA"}
COREFILE = """
.:53 {
    errors
    bind BIND
    template IN A example.com other.com {
        match "^n(?P<n>[0-9]+)[.]"
        answer "{{ .Name }} 60 IN A 198.51.100.{{ .Group.n }}"
    }
    template IN AAAA example.com other.com {
        match "^n(?P<n>[0-9]+)[.]"
        answer "{{ .Name }} 60 IN AAAA 2001:db8:9::{{ .Group.n }}"
    }
    cache 30
    forward . UPSTREAM {
        force_tcp
    }
}
"""
"""As of NodeLocal DNSCache, and names of its own in place of the Internet's."""
OBJECTS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: node-local-dns, namespace: kube-system}
data: {Corefile: COREFILE}
---
apiVersion: v1
kind: Pod
metadata: {name: node-local-dns, namespace: kube-system}
spec:
  hostNetwork: true
  dnsPolicy: Default
  nodeName: node-1
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists}]
  containers:
  - name: node-cache
    image: IMAGE
    args: [-conf, /etc/coredns/Corefile]
    volumeMounts: [{name: config, mountPath: /etc/coredns}]
  volumes: [{name: config, configMap: {name: node-local-dns}}]
"""
UPSTREAM = """
apiVersion: v1
kind: Service
metadata: {name: kube-dns-upstream, namespace: kube-system}
spec:
  selector: {k8s-app: kube-dns}
  ports:
  - {name: dns, port: 53, protocol: UDP}
  - {name: dns-tcp, port: 53, protocol: TCP}
"""
CLIENT = """
import dns.resolver, socket, sys
server, kind, by, *names = sys.argv[1:]
found = dns.resolver.Resolver(configure=False)
found.nameservers, found.lifetime = [server], 30
for name in names:
    address = found.resolve(name, kind, tcp=by == "tcp")[0].address
    try:
        socket.create_connection((address, 80), timeout=30).close()
        print("reached", end=" ")
    except ConnectionRefusedError:
        print("refused", end=" ")
"""
"""Resolves each name and connects at once: a connection that is judged before the address is known is refused."""
SERVER = """
import socket
with socket.create_server(("::", 80), family=socket.AF_INET6, dualstack_ipv6=True) as web:
    print("listening", flush=True)
    while True:
        web.accept()[0].close()
"""
NAMES = 10


def execute(lab: Lab, *words: str) -> str:
    return node.execute(lab.record, NODE, *words)


def service(lab: Lab, name: str) -> dict[int, str]:
    """Its cluster IPs by IP version."""
    shown = json.loads(lab.api.kubectl("-n", "kube-system", "get", "service", name, "-o", "json"))
    return {6 if ":" in ip else 4: ip for ip in shown["spec"]["clusterIPs"]}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with own_lab("nl", SETTINGS) as found:
        for version, cidr in SITES.items():
            via = found.topology.machine("outside").address("eth0", version)
            for machine, words in (("gateway", f"{cidr} via {via}"), ("outside", f"local {cidr} dev lo")):
                route = [f"ip -{version} route add {words}"]
                namespace.script(found.record, namespace.path(found.record, machine), route)
        outside = namespace.path(found.record, "outside")
        server = namespace.inside(outside, [sys.executable, "-c", SERVER])
        with traffic.running("outside", server) as web:
            web.says("listening")
            yield found


@pytest.fixture(scope="module")
def servers(lab: Lab) -> list[tuple[int, str]]:
    """Addresses of the resolver with their IP version: its own, and those of Service kube-dns, which the Node has as well."""
    lab.api.apply(UPSTREAM)
    taken = service(lab, "kube-dns")
    addresses = [(version, ip) for held in (CACHE, taken) for version, ip in held.items()]
    for version, ip in addresses:
        execute(lab, "ip", "address", "add", ip, "dev", "lo")
        for protocol in ("udp", "tcp"):
            keep_from_tracking(lab, version, ip, protocol)
    text = COREFILE.replace("BIND", " ".join(ip for _, ip in addresses))
    text = text.replace("UPSTREAM", service(lab, "kube-dns-upstream")[4])
    lab.api.apply(OBJECTS.replace("COREFILE", json.dumps(text)).replace("IMAGE", COREDNS))
    lab.api.kubectl(
        "-n", "kube-system", "wait", "--for=condition=Ready", "pod/node-local-dns", "--timeout=60s"
    )
    queue_answers(lab)
    return addresses


def keep_from_tracking(lab: Lab, version: int, ip: str, protocol: str) -> None:
    """The rules of NodeLocal DNSCache."""
    tool = {4: "iptables", 6: "ip6tables"}[version]
    to, by = ("-d", ip, "-p", protocol, "--dport", "53"), ("-s", ip, "-p", protocol, "--sport", "53")
    for chain, what in (("PREROUTING", to), ("OUTPUT", to), ("OUTPUT", by)):
        execute(lab, tool, "-t", "raw", "-A", chain, *what, "-j", "NOTRACK")


def queue_answers(lab: Lab) -> None:
    """On a kernel without statement `queue` of nftables: the same by iptables, whose target leads to the same queue."""
    trial = (
        "add table inet t; add chain inet t c; add rule inet t c queue flags bypass to 1; delete table inet t"
    )
    if execute(lab, "sh", "-c", f"nft '{trial}' 2>/dev/null && echo t || echo f").strip() == "t":
        return
    untracked = ("-i", "lo", "-m", "conntrack", "--ctstate", "UNTRACKED")
    for tool in ("iptables-legacy", "ip6tables-legacy"):
        for protocol in ("udp", "tcp"):
            answers = ("-p", protocol, "--sport", "53", *untracked)
            queue = ("-j", "NFQUEUE", "--queue-num", str(QUEUE), "--queue-bypass")
            execute(lab, tool, "-t", "mangle", "-A", "INPUT", *answers, *queue)


def policy(applied_to: dict[str, Any]) -> str:
    """Addresses of one domain's names are allowed, of everything else of theirs none."""
    egress = [
        {"action": "Allow", "to": [{"fqdn": "*.example.com"}]},
        {"action": "Reject", "to": [{"ipBlock": {"cidr": cidr}} for cidr in SITES.values()]},
    ]
    made = {
        "apiVersion": "crd.antrea.io/v1beta1",
        "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "names"},
        "spec": {"priority": 5, "appliedTo": [applied_to], "egress": egress},
    }
    return yaml.safe_dump(made)


def asked(inside: list[str], server: str, version: int, by: str, *names: str) -> list[str]:
    command = [*inside, sys.executable, "-c", CLIENT, server, KINDS[version], by, *names]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.split()


def are_refused(inside: list[str], server: str, version: int) -> bool:
    """Whether the policy is enforced: connections to names that no rule allows."""
    return asked(inside, server, version, "udp", "n7.other.com") == ["refused"]


def first_connections(inside: list[str], servers: list[tuple[int, str]]) -> dict[tuple[str, str], list[str]]:
    """What they meet, by server and protocol; each name, and each address, is asked for once."""
    found, number = {}, 20
    for version, server in servers:
        for by in ("udp", "tcp"):
            names = [f"n{one}.example.com" for one in range(number, number + NAMES)]
            found[server, by] = asked(inside, server, version, by, *names)
            number += NAMES
    return found


def test_the_first_connection_of_a_pod_is_judged_by_the_names_that_a_resolver_on_its_node_gives(
    lab: Lab, servers: list[tuple[int, str]]
) -> None:
    with quiet_pods(lab, {"asks": NODE}) as addresses:
        inside = pod_namespace(lab, NODE, addresses["asks"])
        lab.api.kubectl("label", "pod", "asks", "app=asks")
        lab.api.apply(policy({"podSelector": {"matchLabels": {"app": "asks"}}}))
        try:
            lab.api.kubectl("wait", "acnp/names", "--for=jsonpath={.status.phase}=Realized", "--timeout=60s")
            for version, server in servers:
                assert are_refused(inside, server, version), server
            found = first_connections(inside, servers)
            assert found == dict.fromkeys(found, ["reached"] * NAMES)
            assert len(found) == 2 * len(servers)
        finally:
            lab.api.kubectl("delete", "acnp", "names")


def test_the_first_connection_of_the_node_is_judged_by_the_names_that_its_resolver_gives(
    lab: Lab, servers: list[tuple[int, str]]
) -> None:
    """Answers come over `lo`, and nobody tracks them."""
    inside = namespace.inside(namespace.path(lab.record, NODE), [])
    lab.api.apply(policy({"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": NODE}}}))
    try:
        for version, server in servers:
            wait_for("the policy", partial(are_refused, inside, server, version), seconds=60)
        found = first_connections(inside, servers)
        assert found == dict.fromkeys(found, ["reached"] * NAMES)
    finally:
        lab.api.kubectl("delete", "acnp", "names")
