"""Faults of a cluster, each found with the right cause first, and repaired by the command that the doctor names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from agent_node import pid_of
from api_server import slow_down, speed_up
from doctor_fault import Fault, Faulty, seed

from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.cluster import Lab

CONTROLLER, AGENTS = "deployment/antrea-controller", "daemonset/antrea-agent"
SLOW_SECONDS = 1.0
"""For one request alone: the doctor has a dozen at the same time, and gives each of them up after 10 s."""
KUBELET = "/etc/kubernetes/kubelet.yaml"
FULL = "mount -t tmpfs -o size=128k lab-full /var/log/antrea && { head -c 200k /dev/zero > /var/log/antrea/big; true; }"
BRIDGE_CONF = 'echo \'{"type": "bridge"}\' > /etc/cni/net.d/'
DROP_ALL = (
    "nft add table inet lab-firewall && "
    "nft add chain inet lab-firewall forward '{ type filter hook forward priority 10; policy accept; }' && "
    "nft add rule inet lab-firewall forward counter drop"
)


def template(container: str, **values: object) -> dict[str, Any]:
    """A patch of the containers of a Pod template."""
    spec = {"containers": [{"name": container, **values}]}
    return {"spec": {"template": {"spec": spec}}}


def pods(**values: object) -> dict[str, Any]:
    """A patch of the Pod template itself."""
    return {"spec": {"template": {"spec": values}}}


def on(where: str, line: str) -> Callable[[Faulty], object]:
    return lambda lab: lab.shell(where, line)


def system(*words: str) -> Callable[[Faulty], object]:
    return lambda lab: lab.system(*words)


def without_rights(role: str) -> Callable[[Faulty], object]:
    patch = '[{"op": "replace", "path": "/rules", "value": []}]'
    return lambda lab: lab.kubectl("patch", "clusterrole", role, "--type=json", "-p", patch)


def refuse_agents(lab: Faulty) -> None:
    lab.system("create", "quota", "none", "--hard=pods=1")
    lab.system("delete", "pod", "-l", "component=antrea-agent", "--field-selector=spec.nodeName=node-2")


def refuse_agent_at_start(lab: Faulty) -> None:
    """Without an earlier configuration that works it waits; agents of other Nodes keep theirs."""
    lab.configure(tunnelType="stt")
    lab.shell("node-2", "rm -f /var/run/antrea/antrea-agent.conf.good")
    lab.system("delete", "pod", "-l", "component=antrea-agent", "--field-selector=spec.nodeName=node-2")


def refuse_controller_at_start(lab: Faulty) -> None:
    lab.configure("antrea-controller.conf", tlsMinVersion="none")
    lab.system("delete", "pod", "-l", "component=antrea-controller")


def restore(lab: Faulty) -> None:
    lab.restore()


def at_controller(lab: Faulty, line: str) -> None:
    words = ("get", "aci", "antrea-controller", "-o", "jsonpath={.nodeRef.name}")
    lab.shell(lab.kubectl(*words).strip(), line)


def close_controller(lab: Faulty) -> None:
    at_controller(lab, "iptables -A INPUT -p tcp --dport 10349 -j DROP")


def open_controller(lab: Faulty) -> None:
    rule = "iptables -D INPUT -p tcp --dport 10349 -j"
    at_controller(lab, f"{rule} DROP; {rule} ACCEPT; true")


def hang_agent(lab: Faulty) -> None:
    """The one of now: kubelet replaces an agent that does not answer its liveness probe."""
    wait_for("an agent", lambda: pid_of(lab.lab, "node-2", "antrea-agent"), seconds=60)
    lab.stop("node-2", "antrea-agent")


def press(lab: Faulty) -> None:
    """Set a limit of free process numbers that no machine has."""
    lab.shell("node-2", f"sed -i 's/^evictionHard:/&\\n  pid.available: \"4000000000\"/' {KUBELET}")
    lab.restart_kubelet("node-2")


def relieve(lab: Faulty) -> None:
    lab.shell("node-2", f"sed -i '/pid.available/d' {KUBELET}")
    lab.restart_kubelet("node-2")


def narrow(lab: Faulty, size: int) -> None:
    """The port of the switch that a Node is plugged into."""
    lab.at_switch(f"ip link set dev node-2.eth1 mtu {size}")


def widen(lab: Faulty) -> None:
    narrow(lab, 1500)
    lab.restore()


def join_again(lab: Faulty) -> None:
    """The machine of node-2 had another name before, whose Node object is left."""
    address = lab.lab.topology.machine("node-2").address("eth0", 4)
    status = {"status": {"addresses": [{"type": "InternalIP", "address": address}]}}
    lab.lab.api.apply(
        "{apiVersion: v1, kind: Node, metadata: {name: old-2, labels: {kubernetes.io/os: linux}}}"
    )
    lab.kubectl("patch", "node", "old-2", "--subresource=status", "-p", json.dumps(status))


def account_again(lab: Faulty) -> None:
    lab.system("delete", "serviceaccount", "antrea-agent")
    lab.restore()


PROGRAMS = (
    Fault("controller-scaled-to-0", "controller", "is scaled to 0",
          system("scale", CONTROLLER, "--replicas=0"), system("scale", CONTROLLER, "--replicas=1"), core=True),
    Fault("controller-deleted", "controller", "Deployment antrea-controller is missing", system("delete", CONTROLLER), restore),
    Fault("controller-image", "controller", "cannot start: ",
          lambda lab: lab.patch(CONTROLLER, template("antrea-controller", image="localhost/none:v0")), restore, node="*"),
    Fault("controller-unschedulable", "controller", "cannot be scheduled",
          lambda lab: lab.patch(CONTROLLER, pods(nodeSelector={"nowhere": "x"})), restore, node="*"),
    Fault("controller-crashes", "controller", "ends at start again and again",
          lambda lab: lab.patch(CONTROLLER, template("antrea-controller", command=["sh", "-c", "echo broken by a test; exit 3"], args=[])), restore, node="*"),
    Fault("agent-image", "agents", "cannot start: ",
          lambda lab: lab.patch(AGENTS, template("antrea-agent", image="localhost/none:v0")), restore, node="*"),
    Fault("agent-crashes", "agents", "broken by a test",
          lambda lab: lab.patch(AGENTS, template("antrea-agent", command=["sh", "-c", "echo broken by a test; exit 3"], args=[])), restore, node="*"),
    Fault("agents-not-selected", "agents", "selects Nodes with nowhere=x",
          lambda lab: lab.patch(AGENTS, pods(nodeSelector={"nowhere": "x"})), restore, node="node-1"),
    Fault("agents-deleted", "agents", "DaemonSet antrea-agent is missing", system("delete", AGENTS), restore),
    Fault("config-map-deleted", "config-map", "ConfigMap antrea-config is missing", system("delete", "configmap/antrea-config"), restore),
    Fault("agent-refused-by-a-quota", "agents", "creates none",
          refuse_agents,
          system("delete", "quota", "none"), node="node-2", repairs=False),
    Fault("agent-rights", "missing-rights", "ServiceAccount kube-system/antrea-agent lacks rights", without_rights("antrea-agent"), restore),
    Fault("controller-rights", "missing-rights", "ServiceAccount kube-system/antrea-controller lacks rights", without_rights("antrea-controller"), restore),
    Fault("agent-refused-at-start", "configuration", "the agent waits for the correction", refuse_agent_at_start, restore, node="node-2"),
    Fault("controller-refused-at-start", "controller", "waits for the correction", refuse_controller_at_start, restore, node="*"),
)  # fmt: skip
REGISTRATIONS = (
    Fault("api-service-deleted", "api-services", "v1beta2.controlplane.antrea.io is missing",
          lambda lab: lab.kubectl("delete", "apiservice", "v1beta2.controlplane.antrea.io"), restore),
    Fault("stats-deleted", "api-services", "v1alpha1.stats.antrea.io is missing",
          lambda lab: lab.kubectl("delete", "apiservice", "v1alpha1.stats.antrea.io"), restore),
    Fault("service-deleted", "api-services", "is not present", system("delete", "service", "antrea"), restore),
    Fault("validation-deleted", "webhooks", "crdvalidator.antrea.io is missing",
          lambda lab: lab.kubectl("delete", "validatingwebhookconfiguration", "crdvalidator.antrea.io"), restore),
    Fault("mutation-deleted", "webhooks", "crdmutator.antrea.io is missing",
          lambda lab: lab.kubectl("delete", "mutatingwebhookconfiguration", "crdmutator.antrea.io"), restore),
    Fault("definition-deleted", "definitions", "traceflows",
          lambda lab: lab.kubectl("delete", "crd", "traceflows.crd.antrea.io"), restore),
)  # fmt: skip
SWITCHES = (
    Fault("switch-hangs", "switch", "no answer of ovs-vswitchd", lambda lab: lab.stop("node-2", "ovs-vswitchd"), node="node-2"),
    Fault("switch-away", "switch", "ovs-vswitchd", lambda lab: lab.end("node-2", "ovs-vswitchd"), node="node-2"),
    Fault("database-hangs", "ovsdb", "no answer of ovsdb-server", lambda lab: lab.stop("node-2", "ovsdb-server"), node="node-2"),
    Fault("database-away", "ovsdb", "disconnected from OVSDB", lambda lab: lab.end("node-2", "ovsdb-server"), node="node-2"),
    Fault("agent-hangs", "agent", "does not answer", hang_agent, node="node-2", again=True),
    Fault("kubelet-away", "nodes", "kubelet of this Node does not report", lambda lab: lab.stop("node-2", "kubelet"), node="node-2", repairs=False),
)  # fmt: skip
CONFIGURATIONS = (
    Fault("mtu-too-large", "mtu", "defaultMTU asks for it", lambda lab: lab.configure(defaultMTU=9000), restore, node="*"),
    Fault("kube-proxy-beside-proxy-all", "kube-proxy", "kubeAPIServerOverride is empty",
          lambda lab: lab.configure(antreaProxy={"proxyAll": True}), restore, node="node-1"),
    Fault("key-misspelt", "config", "unknown key", lambda lab: lab.configure(defaltMTU=1400), restore, node="node-1"),
    Fault("value-refused", "config", "the configuration is refused", lambda lab: lab.configure(trafficEncapMode="bogus"), restore, node="node-1"),
    Fault("feature-not-built", "config", "the configuration is refused", lambda lab: lab.configure(featureGates={"Multicast": True}), restore, node="node-1"),
    Fault("controller-value-refused", "config", "the controller's configuration is refused",
          lambda lab: lab.configure("antrea-controller.conf", apiPort="many"), restore, node="*"),
)  # fmt: skip
HOSTS = (
    Fault("cni-before", "cni-configs", "comes before", on("node-1", f"{BRIDGE_CONF}05-other.conf"), on("node-1", "rm -f /etc/cni/net.d/05-other*"), node="node-1"),
    Fault("cni-missing", "cni-configs", "has no 10-antrea.conflist", on("node-1", "rm /etc/cni/net.d/10-antrea.conflist"), node="node-1"),
    Fault("card-mtu", "mtu", "longer packets are lost", on("node-1", "ip link set dev eth1 mtu 1400"), on("node-1", "ip link set dev eth1 mtu 1500"), node="node-1"),
    Fault("forward-drop", "foreign-drops", "chain FORWARD of table ip filter drops", on("node-1", "iptables -P FORWARD DROP"),
          on("node-1", "iptables -P FORWARD ACCEPT; iptables -D FORWARD -i antrea-gw0 -j ACCEPT; iptables -D FORWARD -o antrea-gw0 -j ACCEPT; true"), node="node-1"),
    Fault("firewall-drop", "foreign-drops", "chain forward of table inet lab-firewall drops", on("node-1", DROP_ALL), on("node-1", "nft delete table inet lab-firewall"), node="node-1"),
    Fault("gossip-port", "gossip-port", "port 10351 of Node node-2", on("node-2", "iptables -A INPUT -p tcp --dport 10351 -j DROP"),
          on("node-2", "iptables -D INPUT -p tcp --dport 10351 -j DROP; iptables -D INPUT -p tcp --dport 10351 -j ACCEPT; iptables -D INPUT -p udp --dport 10351 -j ACCEPT; true"), node="node-1"),
    Fault("controller-port", "controller-port", "gets no answer from port 10349", close_controller, open_controller, node="*"),
    Fault("stale-port", "ovs-ports", "port gone0 of bridge br-int is stale", lambda lab: lab.in_agent("node-1", "ovs-vsctl add-port br-int gone0 || true"), node="node-1"),
)  # fmt: skip
EGRESS = """
apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata: {name: doctor}
spec: {externalIPPool: none, appliedTo: {podSelector: {matchLabels: {app: none}}}}
"""
POLICY = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: doctor, namespace: kube-system}
spec: {podSelector: {matchLabels: {k8s-app: kube-dns}}, ingress: [{ports: [{port: nonsense}]}]}
"""
OBJECTS = (
    Fault("egress-without-a-pool", "egresses", "Egress doctor", lambda lab: lab.lab.api.apply(EGRESS),
          lambda lab: lab.kubectl("delete", "egress", "doctor"), repairs=False),
    Fault("port-name-unknown", "policies", "nonsense", lambda lab: lab.lab.api.apply(POLICY),
          lambda lab: lab.system("delete", "networkpolicy", "doctor"), repairs=False),
)  # fmt: skip
CLUSTER = (
    Fault("api-server-slow", "kube-apiserver", "for the fastest request", lambda lab: slow_down(lab.lab, SLOW_SECONDS), lambda lab: speed_up(lab.lab), repairs=False),
    Fault("node-joined-again", "node-addresses", "only the kubelet of node-2 is ready", join_again,
          lambda lab: lab.kubectl("delete", "node", "old-2", "--ignore-not-found"), node="old-2"),
    Fault("process-numbers", "node-pressure", "kubelet reports PIDPressure", press, relieve, node="node-2", repairs=False, shows="PIDPressure"),
    Fault("agent-account-deleted", "agent-account", "ServiceAccount antrea-agent is missing", system("delete", "serviceaccount", "antrea-agent"), restore),
    Fault("controller-account-deleted", "controller-account", "ServiceAccount antrea-controller is missing",
          system("delete", "serviceaccount", "antrea-controller"), restore),
    Fault("agent-account-created-again", "agent-account", "was created again after Pod", account_again, node="*"),
    Fault("dns-scaled-to-0", "cluster-dns", "Deployment coredns is scaled to 0", system("scale", "deployment/coredns", "--replicas=0"),
          system("scale", "deployment/coredns", "--replicas=1")),
    Fault("disk-full", "disk-space", "the file system of /var/log/antrea has no free space", on("node-1", FULL), on("node-1", "umount -l /var/log/antrea"),
          node="node-1", repairs=False, shows="/var/log/antrea/big"),
    Fault("forwarding-off", "forwarding", "net.ipv4.ip_forward of this Node is 0", on("node-1", "sysctl -w net.ipv4.ip_forward=0"),
          on("node-1", "sysctl -w net.ipv4.ip_forward=1"), node="node-1"),
    Fault("switch-mtu", "path-mtu", "a switch or router on the way", lambda lab: narrow(lab, 1400), widen, node="node-1"),
)  # fmt: skip
FAULTS = (*PROGRAMS, *REGISTRATIONS, *SWITCHES, *CONFIGURATIONS, *HOSTS, *CLUSTER, *OBJECTS)


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, id=fault.name, marks=[] if fault.core else pytest.mark.wide) for fault in FAULTS],
)
@pytest.mark.timeout(900)
def test_the_cause_of_a_fault_is_first_and_its_command_repairs_it(lab: Lab, fault: Fault) -> None:
    faulty = Faulty(lab)
    faulty.wait(lambda rows: rows == [], "the lab is not healthy before the fault")
    seed(faulty, fault)
