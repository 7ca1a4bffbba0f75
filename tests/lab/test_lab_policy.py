"""Kubernetes NetworkPolicies hold for real packets between Pods of one Node and of two."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest
import traffic
import workstation
import yaml
from agent_node import antctl, fresh_agent, pod_namespace, ready, restart_agent
from quiet_pod import quiet_pods

from antrea.errors import Unavailable
from lab import node
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.cluster import Lab

OPEN, CLOSED, CONNECTED = "refused", "timeout", ""
"""Nothing listens in these Pods: who says so was reached, and a packet that is dropped has no answer."""
PROBE = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=0.6).close()
except ConnectionRefusedError:
    print("refused")
except TimeoutError:
    print("timeout")
except OSError as why:  # a Service's new port is unreachable until somebody serves it
    print(why.strerror)
"""

ECHO = """
import socket, sys
listener = socket.create_server((sys.argv[1], 9000))
listener.settimeout(60)
print("listening", flush=True)
stream, _ = listener.accept()
while data := stream.recv(4096):
    stream.sendall(data)
"""
LISTEN = """
import socket, sys
listener = socket.create_server((sys.argv[1], 9001))
print("listening", flush=True)
while True:
    listener.accept()[0].close()
"""
SAY = """
import socket, sys
stream = socket.create_connection((sys.argv[1], 9000), timeout=60)
print("connected", flush=True)
for line in sys.stdin:
    stream.sendall(line.encode())
    print(stream.recv(4096).decode().strip(), flush=True)
"""


class Cluster(NamedTuple):
    lab: Lab
    addresses: dict[str, str]
    inside: dict[str, list[str]]
    """The words that bring a command into each Pod's network."""

    def verdict(self, source: str, target: str, port: int = 80) -> str:
        words = [*self.inside[source], sys.executable, "-c", PROBE, self.addresses[target], str(port)]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    def becomes(self, wanted: Mapping[tuple[str, str, int], str]) -> None:
        """Each (from, to, port) gets its verdict soon."""
        found: dict[tuple[str, str, int], str] = {}

        def same() -> bool:
            found.update((each, self.verdict(*each)) for each in wanted)
            return found == wanted

        try:
            wait_for("these verdicts", same, seconds=60, step=0.05)
        except Exception as error:
            error.add_note(f"wanted {wanted}, found {found}")
            raise


@pytest.fixture(scope="module")
def pods(lab: Lab) -> Iterator[Cluster]:
    """Three Pods with a label of their own: `web` and `near` on one Node, `far` on the other."""
    places = {"web": "node-1", "near": "node-1", "far": "node-2"}
    with quiet_pods(lab, places) as addresses:
        for name in places:
            lab.api.kubectl("label", "pod", name, f"app={name}")
        inside = {name: pod_namespace(lab, where, addresses[name]) for name, where in places.items()}
        yield Cluster(lab, addresses, inside)


def policy(name: str, target: str, **spec: object) -> str:
    selector = {"podSelector": {"matchLabels": {"app": target}}}
    meta = {"name": name, "namespace": "default"}
    return yaml.safe_dump(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": meta,
            "spec": selector | spec,
        }
    )


def pod(name: str) -> dict[str, object]:
    return {"podSelector": {"matchLabels": {"app": name}}}


def test_a_policy_isolates_and_makes_exceptions_for_new_connections_only(pods: Cluster) -> None:
    lab, kubectl = pods.lab, pods.lab.api.kubectl
    echo, say = (
        [*pods.inside[name], sys.executable, "-c", text, pods.addresses["web"]]
        for name, text in (("web", ECHO), ("far", SAY))
    )
    try:
        with traffic.running("server", echo) as server:
            server.says("listening")
            with traffic.running("client", say) as client:
                client.says("connected")
                lab.api.apply(policy("p", "web", policyTypes=["Ingress"]))
                pods.becomes(
                    {("near", "web", 80): CLOSED, ("far", "web", 80): CLOSED, ("web", "far", 80): OPEN}
                )
                assert client.process.stdin
                print("still here", file=client.process.stdin, flush=True)
                client.says("still here")
        # kubelet's probes come from the Node
        node.execute(lab.record, "node-1", "ping", "-c1", "-W30", pods.addresses["web"])
        assert "K8sNetworkPolicy:default/p" in antctl(lab, "node-1", "get", "networkpolicy")

        ports = [{"port": 80}, {"port": 8080, "endPort": 8090}]
        lab.api.apply(policy("p", "web", ingress=[{"from": [pod("near")], "ports": ports}]))
        pods.becomes(
            {
                ("near", "web", 80): OPEN,
                ("near", "web", 8090): OPEN,
                ("near", "web", 81): CLOSED,
                ("far", "web", 80): CLOSED,
            }
        )
        hole = {"cidr": "10.244.0.0/16", "except": [f"{pods.addresses['near']}/32"]}
        lab.api.apply(policy("p", "web", ingress=[{"from": [{"ipBlock": hole}]}]))
        pods.becomes({("near", "web", 80): CLOSED, ("far", "web", 80): OPEN})
    finally:
        kubectl("delete", "networkpolicy", "p", "--ignore-not-found")
    pods.becomes({("near", "web", 80): OPEN, ("far", "web", 80): OPEN})


def test_a_policy_for_what_pods_send_outlives_the_agent(pods: Cluster) -> None:
    lab = pods.lab
    spec = {"policyTypes": ["Egress"], "egress": [{"to": [pod("web")], "ports": [{"port": 80}]}]}
    wanted = {
        ("far", "web", 80): OPEN,
        ("far", "web", 81): CLOSED,
        ("far", "near", 80): CLOSED,
        ("near", "far", 80): OPEN,
    }
    lab.api.apply(policy("out", "far", **spec))
    try:
        pods.becomes(wanted)
        fresh_agent(lab, "node-2")
        pods.becomes(wanted)
        restart_agent(lab, "node-2")
        seen = {each: {pods.verdict(*each)} for each in wanted}
        while not ready(lab, "node-2"):
            for each in wanted:
                seen[each].add(pods.verdict(*each))
        assert seen == {each: {verdict} for each, verdict in wanted.items()}
        assert {each: pods.verdict(*each) for each in wanted} == wanted
    finally:
        lab.api.kubectl("delete", "networkpolicy", "out")
    pods.becomes(dict.fromkeys(wanted, OPEN))
    shown = partial(antctl, lab, "node-2", "get", "ovsflows")
    wait_for("the end of its conjunctions", lambda: "conj_id" not in shown(), seconds=60)


def native(name: str, tier: str, action: str, source: str, port: int = 80, /, **more: object) -> str:
    """A ClusterNetworkPolicy on what `web` receives from one Pod on a port."""
    rule = {"action": action, "from": [pod(source)], "ports": [{"protocol": "TCP", "port": port}]} | more
    spec = {"tier": tier, "priority": 5, "appliedTo": [pod("web")], "ingress": [rule]}
    meta = {"name": name}
    return yaml.safe_dump(
        {
            "apiVersion": "crd.antrea.io/v1beta1",
            "kind": "ClusterNetworkPolicy",
            "metadata": meta,
            "spec": spec,
        }
    )


def test_antreas_own_policies_come_before_kubernetes_and_the_baseline_after(pods: Cluster) -> None:
    apply, kubectl = pods.lab.api.apply, pods.lab.api.kubectl
    near, far, other = ("near", "web", 80), ("far", "web", 80), ("far", "web", 81)
    try:
        apply(native("base", "baseline", "Drop", "far"))
        pods.becomes({near: OPEN, far: CLOSED, other: OPEN})
        wait_for("the report of its Node", lambda: _phase(pods.lab, "base") == ("Realized", 1, 1), seconds=60)
        apply(policy("p", "web", ingress=[{"from": [pod("far")]}]))
        pods.becomes({near: CLOSED, far: OPEN, other: OPEN})
        apply(native("first", "securityops", "Drop", "far"))
        pods.becomes({near: CLOSED, far: CLOSED, other: OPEN})
        apply(native("over", "emergency", "Pass", "far"))
        apply(native("allow", "application", "Allow", "near"))
        pods.becomes({near: OPEN, far: OPEN, other: OPEN})
    finally:
        kubectl("delete", "acnp", "base", "first", "over", "allow", "--ignore-not-found")
        kubectl("delete", "networkpolicy", "p", "--ignore-not-found")
    pods.becomes({near: OPEN, far: OPEN})


def _phase(lab: Lab, name: str) -> tuple[str, int, int]:
    """Of a ClusterNetworkPolicy: the phase, and the Nodes that have it and should."""
    found = json.loads(lab.api.kubectl("get", "acnp", name, "-o", "json")).get("status", {})
    return found.get("phase", ""), found.get("currentNodesRealized", 0), found.get("desiredNodesRealized", 0)


@pytest.mark.wide
def test_a_policy_for_nodes_whose_gate_is_off_is_realized_by_none_and_says_so(pods: Cluster) -> None:
    kubectl = pods.lab.api.kubectl
    node_policy = yaml.safe_load(native("nodes", "application", "Drop", "far"))
    node_policy["spec"]["appliedTo"] = [{"nodeSelector": {}}]
    off = "the feature gate NodeNetworkPolicy is off in antrea-agent.conf of this Node"
    why = f'Failed Nodes count 2: "node-1":"{off}", "node-2":"{off}"'
    try:
        pods.lab.api.apply(yaml.safe_dump(node_policy))
        wait_for("its status", lambda: _phase(pods.lab, "nodes") == ("Failed", 0, 2), seconds=60)
        assert kubectl("get", "acnp", "nodes", "--no-headers").split()[:5] == [
            *("nodes", "application", "5", "2", "0")
        ]
        (condition,) = json.loads(
            kubectl(
                *("get", "acnp", "nodes", "-o"),
                'jsonpath=[{.status.conditions[?(@.type=="RealizationFailure")]}]',
            )
        )
        assert (condition["status"], condition["message"]) == ("True", why)
        done = workstation.run(pods.lab, "doctor", "-o", "json", code=1)
        found = [row["finding"] for row in json.loads(done.stdout) if row["check"] == "policies"]
        assert found == [f"ClusterNetworkPolicy nodes is not enforced as it is written: {why}"]
    finally:
        kubectl("delete", "acnp", "nodes", "--ignore-not-found")


def test_a_rejected_client_of_another_node_is_refused_and_the_log_says_by_whom(pods: Cluster) -> None:
    lab = pods.lab
    line = (
        "AntreaPolicyIngressRule AntreaClusterNetworkPolicy:no no-entry Ingress Reject [0-9]* default/web"
        f" {pods.addresses['far']} [0-9]* {pods.addresses['web']} 9001 TCP 60 refused"
    )
    logs = {"enableLogging": True, "logLabel": "refused", "name": "no-entry"}
    listen = [*pods.inside["web"], sys.executable, "-c", LISTEN, pods.addresses["web"]]
    far, near = ("far", "web", 9001), ("near", "web", 9001)
    try:
        with traffic.running("server", listen) as server:
            server.says("listening")
            pods.becomes({far: CONNECTED, near: CONNECTED})
            lab.api.apply(native("no", "application", "Reject", "far", 9001, **logs))
            pods.becomes({far: "refused", near: CONNECTED})
            search = f"until grep -q '{line}' /var/log/antrea/networkpolicy/np.log; do sleep 0.1; done"
            node.execute(lab.record, "node-1", "timeout", "50", "sh", "-c", search)
    finally:
        lab.api.kubectl("delete", "acnp", "no", "--ignore-not-found")


def test_an_audited_policy_drops_nothing_and_says_what_it_would_until_it_is_enforced(pods: Cluster) -> None:
    lab, kubectl, far = pods.lab, pods.lab.api.kubectl, ("far", "web", 80)
    words = f"[0-9<nil>]* default/web {pods.addresses['far']} [0-9]* {pods.addresses['web']} 80 TCP"
    wanted = (
        f"AntreaPolicyIngressRule AntreaClusterNetworkPolicy:no no-entry Ingress AuditDrop {words}",
        f"IngressDefaultRule K8sNetworkPolicy <nil> Ingress AuditDrop {words}",
    )
    notes = {"annotations": {"antrea.io/enforcement": "audit"}}
    closed = yaml.safe_load(policy("p", "web", ingress=[{"from": [pod("near")]}]))
    drop = yaml.safe_load(native("no", "application", "Drop", "far", name="no-entry"))
    columns = ("get", "acnp", "no", "--no-headers", "-o", "wide")
    try:
        # the isolation first: the rule of Antrea's own decides before it
        for found, line in ((closed, wanted[1]), (drop, wanted[0])):
            lab.api.apply(yaml.safe_dump(found | {"metadata": found["metadata"] | notes}))
            log = f"until grep -q '{line}' /var/log/antrea/networkpolicy/np.log; do sleep 0.1; done"
            with _probing(pods, far) as verdicts:
                node.execute(lab.record, "node-1", "timeout", "50", "sh", "-c", log)
            assert set(verdicts) == {OPEN}
        wait_for("its column", lambda: kubectl(*columns).split()[-1] == "True", seconds=60)
        kubectl("annotate", "acnp", "no", "antrea.io/enforcement-")
        pods.becomes({far: CLOSED, ("near", "web", 80): OPEN, ("far", "web", 81): OPEN})
    finally:
        kubectl("delete", "acnp", "no", "--ignore-not-found")
        kubectl("delete", "networkpolicy", "p", "--ignore-not-found")
    pods.becomes({far: OPEN})


@contextlib.contextmanager
def _probing(pods: Cluster, each: tuple[str, str, int]) -> Iterator[list[str]]:
    """What becomes of one connection after the other meanwhile."""
    verdicts: list[str] = []
    ended = threading.Event()

    def probe() -> None:
        while not verdicts or not ended.is_set():
            verdicts.append(pods.verdict(*each))

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        yield verdicts
    finally:
        ended.set()
        thread.join()


def test_what_policies_let_pass_and_drop_is_counted_over_a_restart_of_the_agent(pods: Cluster) -> None:
    kubectl, shown = pods.lab.api.kubectl, ("networkpolicystats", "antreaclusternetworkpolicystats")

    def row(kind: str, name: str) -> list[str]:
        """Name, sessions, packets, bytes."""
        return kubectl("get", kind, name, "--no-headers").split()[:4]

    fresh_agent(pods.lab, "node-1")  # the first kill of a Pod's container is not paused for, others are
    try:
        pods.lab.api.apply(policy("p", "web", ingress=[{"from": [pod("near")]}]))
        pods.lab.api.apply(native("no", "application", "Drop", "far", name="no-entry"))
        pods.becomes({("far", "web", 81): CLOSED})
        wait_for("the report of its Node", lambda: _phase(pods.lab, "no") == ("Realized", 1, 1), seconds=60)
        probes = [("near", OPEN), ("near", OPEN), ("far", CLOSED), ("near", OPEN), ("far", CLOSED)]
        assert [pods.verdict(source, "web") for source, _ in probes] == [verdict for _, verdict in probes]
        restart_agent(pods.lab, "node-1")
        # a SYN and its RST each, of 74 and 54 bytes; a SYN that is dropped
        wanted = [["p", "3", "6", "384"], ["no", "2", "2", "148"]]
        wait_for("the counts", lambda: [row(shown[0], "p"), row(shown[1], "no")] == wanted, seconds=60)
        (rule,) = json.loads(kubectl("get", shown[1], "no", "-o", "json"))["ruleTrafficStats"]
        assert rule == {"name": "no-entry", "trafficStats": {"packets": 2, "bytes": 148, "sessions": 2}}
        # the next controller has nothing in its memory, and is told
        kubectl("-n", "kube-system", "delete", "pod", "-l", "component=antrea-controller", "--grace-period=1")

        def again() -> bool:
            with contextlib.suppress(Unavailable):
                return [row(shown[0], "p"), row(shown[1], "no")] == wanted
            return False

        wait_for("the counts of before", again, seconds=120)
    finally:
        kubectl("delete", "acnp", "no", "--ignore-not-found")
        kubectl("delete", "networkpolicy", "p", "--ignore-not-found")
    wait_for(
        "an end of the counts",
        lambda: not any(kubectl("get", kind, "-A", "--no-headers", "-o", "name") for kind in shown),
        seconds=60,
    )


SERVICES = """
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 9001}]}
---
"""


def to_services(*rules: tuple[str, tuple[str, ...]]) -> str:
    """A ClusterNetworkPolicy on what `near` and `far` send: action and Services of each rule."""
    egress = [
        {
            "name": f"rule-{number}",
            "action": action,
            "enableLogging": True,
            "toServices": [{"name": name, "namespace": "default"} for name in names],
        }
        for number, (action, names) in enumerate(rules)
    ]
    spec = {"tier": "application", "priority": 5, "appliedTo": [pod("near"), pod("far")], "egress": egress}
    found = {"apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy"}
    return yaml.safe_dump({**found, "metadata": {"name": "services"}, "spec": spec})


@pytest.mark.wide
def test_a_rule_on_a_service_is_not_for_another_one_with_the_same_pods_behind_it(pods: Cluster) -> None:
    apply, kubectl = pods.lab.api.apply, pods.lab.api.kubectl
    listen = [*pods.inside["web"], sys.executable, "-c", LISTEN, pods.addresses["web"]]
    try:
        apply("".join(SERVICES.replace("NAME", name) for name in ("one", "two")))
        ips = {
            name: kubectl("get", "service", name, "-o", "jsonpath={.spec.clusterIP}")
            for name in ("one", "two")
        }
        cluster = pods._replace(addresses=pods.addresses | ips)
        one, far_one, two, web = (
            ("near", "one", 80),
            ("far", "one", 80),
            ("near", "two", 80),
            ("near", "web", 9001),
        )
        with traffic.running("server", listen) as server:
            server.says("listening")
            cluster.becomes(dict.fromkeys((one, far_one, two, web), CONNECTED))
            apply(to_services(("Drop", ("one",))))
            cluster.becomes({one: CLOSED, far_one: CLOSED, two: CONNECTED, web: CONNECTED})
            line = (
                "AntreaPolicyEgressRule AntreaClusterNetworkPolicy:services rule-0 Egress Drop [0-9]* default/near"
                f" {pods.addresses['near']} [0-9]* {pods.addresses['web']} 9001 TCP 60"
            )
            search = f"until grep -q '{line}' /var/log/antrea/networkpolicy/np.log; do sleep 0.1; done"
            node.execute(pods.lab.record, "node-1", "timeout", "50", "sh", "-c", search)
            moved = json.dumps([{"op": "replace", "path": "/spec/ports/0/port", "value": 81}])
            kubectl("patch", "service", "one", "--type=json", "-p", moved)
            cluster.becomes({("near", "one", 81): CLOSED, two: CONNECTED})
            apply(to_services(("Reject", ("two",))))
            cluster.becomes({("near", "one", 81): CONNECTED, two: "refused"})
            apply(to_services(("Allow", ("one",)), ("Drop", ("one", "two"))))
            cluster.becomes({("near", "one", 81): CONNECTED, two: CLOSED, web: CONNECTED})
            kubectl("delete", "service", "two")
    finally:
        kubectl("delete", "acnp", "services", "--ignore-not-found")
        kubectl("delete", "service", "one", "two", "--ignore-not-found")
