"""Rules on domain names hold for the first connection after the DNS answer."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import workstation
import yaml
from agent_node import antctl, pod_namespace
from quiet_pod import quiet_pods

from lab.process import wait_for

if TYPE_CHECKING:
    from lab.cluster import Lab

CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 80), timeout=1).close()
except ConnectionRefusedError:
    print("refused")
except TimeoutError:
    print("timeout")
"""
"""Nothing listens: what refuses was reached, and a packet that is dropped has no answer."""
RESOLVE = """
import dns.resolver, sys
found = dns.resolver.Resolver(configure=False)
found.nameservers, found.lifetime = [sys.argv[2]], 20
sys.argv[1:] = [found.resolve(sys.argv[1], "A", tcp=sys.argv[3] == "tcp")[0].address]
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec: {clusterIP: None, selector: {app: NAME}, ports: [{port: 80}]}
---
"""
POLICY = {
    "apiVersion": "crd.antrea.io/v1beta1",
    "kind": "ClusterNetworkPolicy",
    "metadata": {"name": "names"},
    "spec": {
        "priority": 5,
        "appliedTo": [{"podSelector": {"matchLabels": {"app": "asks"}}}],
        "egress": [
            {"action": "Allow", "to": [{"fqdn": "allowed*.default.svc.*"}]},
            {"action": "Allow", "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
            {"action": "Drop"},
        ],
    },
}


def test_the_first_connection_to_a_name_is_judged_by_the_rules_on_it(lab: Lab) -> None:
    api, names = lab.api, ("allowed-1", "allowed-2", "other")
    places = {"asks": "node-1", "allowed-1": "node-1", "allowed-2": "node-2", "other": "node-2"}
    dns = api.kubectl("-n", "kube-system", "get", "service", "kube-dns", "-o", "jsonpath={.spec.clusterIP}")
    with quiet_pods(lab, places) as addresses:
        inside = pod_namespace(lab, "node-1", addresses["asks"])

        def reached(script: str, *words: str) -> str:
            command = [*inside, sys.executable, "-c", script, *words]
            return subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=60
            ).stdout.strip()

        try:
            for name in places:
                api.kubectl("label", "pod", name, f"app={name}")
            api.apply("".join(SERVICE.replace("NAME", name) for name in names))
            for name in names:
                # not by the Pod: the first answer that it gets is the one that counts
                wait = (
                    "get",
                    "endpointslices",
                    "-l",
                    f"kubernetes.io/service-name={name}",
                    "-o",
                    "jsonpath={..addresses}",
                )
                wait_for(f"Endpoints of {name}", partial(api.kubectl, *wait), seconds=60)
            api.apply(yaml.safe_dump(POLICY))
            api.kubectl("wait", "acnp/names", "--for=jsonpath={.status.phase}=Realized", "--timeout=60s")
            assert {reached(CONNECT, addresses[name]) for name in names} == {"timeout"}
            for name, protocol in (("allowed-1", "udp"), ("allowed-2", "tcp"), ("other", "udp")):
                found = reached(RESOLVE + CONNECT, f"{name}.default.svc.cluster.local", dns, protocol)
                assert found == ("timeout" if name == "other" else "refused"), (name, protocol)
            shown = antctl(lab, "node-1", "get", "fqdncache")
            assert addresses["allowed-1"] in shown
            assert addresses["other"] not in shown
            asks = ("explain", "--from", "default/asks", "--port", "80/tcp", "--to")
            explained = workstation.run(lab, *asks, addresses["allowed-1"])
            assert "Names: allowed-1.default.svc.cluster.local, by DNS answers" in explained.stdout
            explained = workstation.run(lab, *asks, addresses["other"], code=3)
            assert "Names: none, by DNS answers that the agent of Node node-1 has." in explained.stdout
        finally:
            api.kubectl("delete", "acnp", "names", "--ignore-not-found")
            api.kubectl("delete", "service", *names, "--ignore-not-found")
