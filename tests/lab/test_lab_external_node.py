"""A machine outside a cluster of both families: what Pods and it send each other, and policies on either with the other as peer."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import traffic
import workstation
from own_lab import own_lab
from quiet_pod import quiet_pods

from lab import cluster, namespace, node, outside_machine
from lab.cluster import Lab
from lab.outside_machine import SPACE
from lab.process import wait_for
from lab.settings import Settings
from lab.topology import OUTSIDE, Machine, Nic, default_routes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]
NAME, OTHERS = "vm1", "others"
OURS = {4: "192.0.2.21", 6: "2001:db8:2::21"}
CARD = Nic(name="eth0", switch="outside", addresses=(f"{OURS[4]}/24", f"{OURS[6]}/64"))
SETTINGS = Settings(
    nodes=2,
    family="dual",
    hosts=(Machine(name=NAME, nics=(CARD,), routes=default_routes(OUTSIDE, "dual")),),
    controller={"featureGates": {"ExternalNode": True}},
)
PODS = {"web": "node-1", "other": "node-2"}
PORT = 8080
ROUTES = "/apis/crd.antrea.io"
ENTITY = f"{ROUTES}/v1alpha2/namespaces/{{}}/externalentities/{NAME}"
INFO = f"{ROUTES}/v1beta1/antreaagentinfos/{NAME}"
SERVER = """
import socket, sys
tcp = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
print("listening", flush=True)
while True:
    client, peer = tcp.accept()
    client.sendall(peer[0].removeprefix("::ffff:").encode())
    client.close()
"""
PROBE = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 2) as peer:
        print(peer.recv(64).decode())
except OSError as why:
    print(type(why).__name__)
"""
UDP_SERVER = """
import socket, sys
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.bind(("::", int(sys.argv[1])))
print("listening", flush=True)
while True:
    print(udp.recvfrom(64)[1][0].removeprefix("::ffff:"), flush=True)
"""
UDP_CLIENT = """
import socket, sys
udp = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((sys.argv[3], 0))
udp.sendto(b"x", (sys.argv[1], int(sys.argv[2])))
"""
NAMES = {"allowed": 31, "dropped": 32, "rejected": 33}
"""Last numbers of the addresses of these names, which `outside` has."""
DNS_SERVER = """
import dns.message, dns.rdatatype, dns.rrset, json, socket, sys
names = json.loads(sys.argv[2])
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((sys.argv[1], 53))
print("listening", flush=True)
while True:
    data, client = udp.recvfrom(4096)
    said = dns.message.make_response(dns.message.from_wire(data))
    (asked,) = said.question
    prefix = {dns.rdatatype.A: "192.0.2.", dns.rdatatype.AAAA: "2001:db8:2::"}[asked.rdtype]
    kind = dns.rdatatype.to_text(asked.rdtype)
    number = names[asked.name.labels[0].decode()]
    said.answer.append(dns.rrset.from_text(asked.name, 300, "IN", kind, prefix + str(number)))
    udp.sendto(said.to_wire(), client)
"""
RESOLVE = """
import dns.resolver, sys
found = dns.resolver.Resolver(configure=False)
found.nameservers, found.lifetime = [sys.argv[3]], 20
sys.argv[1] = found.resolve(sys.argv[1], sys.argv[4])[0].address
"""
CLOSED, REFUSED = "TimeoutError", "ConnectionRefusedError"


class World(msgspec.Struct, frozen=True):
    """The lab, and addresses of each Pod and of the Nodes, by family."""

    lab: Lab
    pods: dict[str, dict[int, str]]
    nodes: dict[str, dict[int, str]]

    def words(self, place: str, program: str, *arguments: object) -> list[str]:
        """The command line that runs a program in the network of a Pod or of a machine."""
        own = [sys.executable, "-c", program, *map(str, arguments)]
        if place in self.pods:
            return [*node.inside_pod(self.lab.record, PODS[place], self.pods[place][4]), *own]
        return namespace.inside(namespace.path(self.lab.record, place), own)

    def seen(self, place: str, address: str, port: int = PORT) -> str:
        """The address that a server sees of who connects to it from there; else the name of the error."""
        words = self.words(place, PROBE, address, port)
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    def reached(self, place: str, addresses: Mapping[int, str]) -> dict[int, bool]:
        """Whether a connection from there is made, by family."""
        return {version: self.seen(place, address) != CLOSED for version, address in addresses.items()}

    def outside(self) -> dict[int, str]:
        host = self.lab.topology.machine("outside")
        return {version: host.address("eth0", version) for version in (4, 6)}

    def serving(self, place: str, program: str = SERVER) -> contextlib.AbstractContextManager[traffic.End]:
        return traffic.running(place, self.words(place, program, PORT))


OPEN, SHUT = dict.fromkeys((4, 6), True), dict.fromkeys((4, 6), False)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Pods, a machine whose agent runs and whose interface is behind the switch, and servers on all; without policies.

    The router between them knows the way to Pods.
    """
    with own_lab("xnode", SETTINGS) as lab, quiet_pods(lab, PODS), contextlib.ExitStack() as stack:
        ways = [
            f"ip route add {cidr} via {lab.topology.machine(name).address('eth0', 6 if ':' in cidr else 4)}"
            for name, cidrs in cluster.pod_cidrs(lab).items()
            for cidr in cidrs
        ]
        namespace.script(lab.record, namespace.path(lab.record, "gateway"), ways)
        for pod in PODS:
            lab.api.kubectl("label", "pod", pod, f"app={pod}")
        outside_machine.serve(lab)
        lab.api.apply(json.dumps(external_node()))
        outside_machine.start(lab, NAME)
        outside_machine.execute(lab.record, NAME, "sudo", "systemctl", "start", "antrea-agent")
        wait_for("the machine's interface behind its switch", lambda: is_connected(lab), seconds=120)
        nodes = {one.name: {v: one.address("eth0", v) for v in (4, 6)} for one in lab.topology.nodes}
        found = World(lab, {pod: addresses(lab, pod) for pod in PODS}, nodes)
        for place in (*PODS, NAME, "outside"):
            stack.enter_context(found.serving(place)).says("listening")
        yield found


def external_node(space: str = SPACE, *ips: str, **labels: str) -> dict[str, Any]:
    meta = {"name": NAME, "namespace": space, "labels": {"role": "db", **labels}}
    spec = {"interfaces": [{"ips": list(ips or OURS.values())}]}
    return {"apiVersion": "crd.antrea.io/v1alpha1", "kind": "ExternalNode", "metadata": meta, "spec": spec}


def is_connected(lab: Lab) -> bool:
    ports = outside_machine.execute(lab.record, NAME, "sh", "-c", "ovs-vsctl list-ports br-int || true")
    return sorted(ports.split()) == ["eth0", "eth0~"]


def addresses(lab: Lab, pod: str) -> dict[int, str]:
    found = lab.api.get(f"/api/v1/namespaces/default/pods/{pod}")["status"]["podIPs"]
    return {6 if ":" in one["ip"] else 4: one["ip"] for one in found}


MACHINE = {"externalEntitySelector": {"matchLabels": {"role": "db"}}}
FROM_SPACE = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SPACE}}}


def pod(name: str, space: str = "default") -> dict[str, Any]:
    selected = {"matchLabels": {"kubernetes.io/metadata.name": space}}
    return {"podSelector": {"matchLabels": {"app": name}}, "namespaceSelector": selected}


@contextlib.contextmanager
def policy(lab: Lab, space: str, applied: Mapping[str, Any], **rules: Any) -> Iterator[None]:
    """It holds while the block lasts."""
    spec = {"priority": 5, "appliedTo": [applied], **rules}
    kind = {"apiVersion": "crd.antrea.io/v1beta1", "kind": "NetworkPolicy"}
    lab.api.apply(json.dumps({**kind, "metadata": {"name": "p", "namespace": space}, "spec": spec}))
    try:
        wait_for("the policy", partial(realized, lab, space), seconds=60)
        yield
    finally:
        lab.api.kubectl("delete", "annp", "p", "-n", space)


def realized(lab: Lab, space: str) -> bool:
    status = lab.api.get(f"{ROUTES}/v1beta1/namespaces/{space}/networkpolicies/p").get("status", {})
    return bool(status.get("phase") == "Realized" and status["currentNodesRealized"] == 1)


def becomes(what: str, probe: Callable[[], object], wanted: object) -> None:
    """The switch's cache follows its flows a moment later."""
    wait_for(f"{what}: {wanted}", lambda: probe() == wanted, seconds=60)


def test_a_machine_sees_the_nodes_of_pods_and_pods_see_the_machine(world: World) -> None:
    """Pods leave the cluster with the address of their Node, whoever asks; nobody has a policy."""
    for version, address in OURS.items():
        for name, place in PODS.items():
            assert world.seen(name, address) == world.nodes[place][version]
            assert world.seen(NAME, world.pods[name][version]) == address


def test_a_machine_sends_nothing_to_pods_that_its_policy_names(world: World) -> None:
    """Others it reaches; its audit log has what was dropped, and the explanation is the same. Then the labels of the Pods change."""
    rule = {"action": "Drop", "name": "no-web", "enableLogging": True, "to": [pod("web")]}
    with policy(world.lab, SPACE, MACHINE, egress=[rule]):
        becomes("to web", lambda: world.reached(NAME, world.pods["web"]), SHUT)
        for version, address in OURS.items():
            becomes("in the audit log", partial(logged, world, address, world.pods["web"][version]), True)
            explain(world, address, "default/web", "Drop")
            explain(world, address, "default/other", "Allow")
        assert world.reached(NAME, world.pods["other"]) == OPEN
        assert world.reached(NAME, world.outside()) == OPEN
        world.lab.api.kubectl("label", "--overwrite", "pod", "web", "app=none")
        becomes("to web without the label", lambda: world.reached(NAME, world.pods["web"]), OPEN)
        world.lab.api.kubectl("label", "--overwrite", "pod", "web", "app=web")
        becomes("to web", lambda: world.reached(NAME, world.pods["web"]), SHUT)
    becomes("without the policy", lambda: world.reached(NAME, world.pods["web"]), OPEN)


def logged(world: World, *words: str) -> bool:
    """Whether the machine's audit log has a line with these words about a drop by the rule."""
    log = "/var/log/antrea/networkpolicy/np.log"
    found = outside_machine.execute(world.lab.record, NAME, "sh", "-c", f"cat {log} || true")
    return any({"Drop", "no-web", *words} <= {*line.split()} for line in found.splitlines())


def explain(world: World, source: str, destination: str, verdict: str) -> None:
    """`antctl explain` has this verdict on a connection to the servers' port."""
    words = ("explain", "--from", source, "--to", destination, "--port", f"{PORT}/tcp")
    told = workstation.run(world.lab, *words, code=0 if verdict == "Allow" else 3)
    assert told.stdout.startswith(f"{verdict}: ")


def test_a_machine_lets_in_what_has_the_address_of_a_pod_or_node_that_its_policy_names(world: World) -> None:
    """What a Pod sends has that of its Node: a rule that names the Pod is not for it, one that names the Node is."""
    drop = {"action": "Drop", "ports": [{"port": PORT, "protocol": "TCP"}, {"port": PORT, "protocol": "UDP"}]}
    with policy(world.lab, SPACE, MACHINE, ingress=[{"action": "Allow", "from": [pod("web")]}, drop]):
        for name in PODS:
            becomes(f"from {name}", partial(world.reached, name, OURS), SHUT)
            for address in OURS.values():
                explain(world, f"default/{name}", address, "Drop")
        with world.serving(NAME, UDP_SERVER) as server:
            server.says("listening")
            for version, address in OURS.items():
                for name in ("other", "web"):
                    sent_as(world, world.pods[name][version], address)
                server.says(world.pods["web"][version])
    on_first = {"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "node-1"}}}
    with policy(world.lab, SPACE, MACHINE, ingress=[{"action": "Allow", "from": [on_first]}, drop]):
        becomes("from the other Node's", lambda: world.reached("other", OURS), SHUT)
        assert world.reached("web", OURS) == OPEN


def sent_as(world: World, source: str, address: str) -> None:
    """A datagram with a Pod's address, as where nobody translates it: sent by a neighbour of the machine."""
    way = "-6" if ":" in source else "-4"
    own = namespace.path(world.lab.record, "outside")
    namespace.script(world.lab.record, own, [f"ip {way} addr add {source} dev lo"])
    words = world.words("outside", UDP_CLIENT, address, PORT, source)
    subprocess.run(words, check=True, timeout=60)
    namespace.script(world.lab.record, own, [f"ip {way} addr del {source} dev lo"])


def test_a_pod_lets_nothing_in_from_a_machine_that_its_policy_names(world: World) -> None:
    peer = {**MACHINE, **FROM_SPACE}
    with policy(world.lab, "default", pod_of("web"), ingress=[{"action": "Drop", "from": [peer]}]):
        becomes("from the machine", lambda: world.reached(NAME, world.pods["web"]), SHUT)
        assert world.reached(NAME, world.pods["other"]) == OPEN
        assert world.reached("outside", world.pods["web"]) == OPEN
    becomes("without the policy", lambda: world.reached(NAME, world.pods["web"]), OPEN)


def test_a_pod_sends_nothing_to_a_machine_that_its_policy_names(world: World) -> None:
    peer = {**MACHINE, **FROM_SPACE}
    with policy(world.lab, "default", pod_of("web"), egress=[{"action": "Drop", "to": [peer]}]):
        becomes("to the machine", lambda: world.reached("web", OURS), SHUT)
        assert world.reached("other", OURS) == OPEN
        assert world.reached("web", world.outside()) == OPEN
    becomes("without the policy", lambda: world.reached("web", OURS), OPEN)


def test_names_that_a_machine_asks_for_are_judged_by_its_policy(world: World) -> None:
    """Allowed, dropped and rejected, from the first connection after the answer on."""
    own = namespace.path(world.lab.record, "outside")
    nodad = [
        f"ip addr add 192.0.2.{number}/24 dev eth0; ip addr add 2001:db8:2::{number}/64 dev eth0 nodad"
        for number in NAMES.values()
    ]
    namespace.script(world.lab.record, own, nodad)
    server = world.outside()[4]
    rules = [
        {"action": action, "to": [{"fqdn": f"{name}.test"}]}
        for action, name in (("Allow", "allowed"), ("Drop", "dropped"), ("Reject", "rejected"))
    ]
    with (
        traffic.running("dns", world.words("outside", DNS_SERVER, server, json.dumps(NAMES))) as dns,
        policy(world.lab, SPACE, MACHINE, egress=rules),
    ):
        dns.says("listening")
        for version, kind in ((4, "A"), (6, "AAAA")):
            for name, wanted in (("allowed", OURS[version]), ("dropped", CLOSED), ("rejected", REFUSED)):
                words = world.words(NAME, RESOLVE + PROBE, f"{name}.test", PORT, server, kind)
                done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
                assert done.stdout.strip() == wanted, (name, kind)


def pod_of(name: str) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": {"app": name}}}


@pytest.fixture
def others(world: World) -> Iterator[str]:
    """Another Namespace, in which there is an ExternalNode of the same name."""
    api = world.lab.api
    api.kubectl("create", "namespace", OTHERS)
    api.apply(json.dumps(external_node(OTHERS, "192.0.2.77", "2001:db8:2::77")))
    wait_for("its ExternalEntity", lambda: entity(world.lab, OTHERS), seconds=60)
    yield OTHERS
    api.kubectl("delete", "namespace", OTHERS)


def entity(lab: Lab, space: str) -> dict[str, Any] | None:
    """The ExternalEntity of that name; None: there is none."""
    found = lab.api.items(f"{ROUTES}/v1alpha2/namespaces/{space}/externalentities")
    return next((one for one in found if one["metadata"]["name"] == NAME), None)


def test_of_two_external_nodes_of_one_name_each_has_the_policies_of_its_namespace(
    world: World, others: str
) -> None:
    """A machine of the one gets nothing of the other, and nothing of its own ends with the other."""
    api = world.lab.api
    meta = {"name": "q", "namespace": others}
    spec = {
        "priority": 1,
        "appliedTo": [MACHINE],
        "ingress": [{"action": "Drop"}],
        "egress": [{"action": "Drop"}],
    }
    kind = {"apiVersion": "crd.antrea.io/v1beta1", "kind": "NetworkPolicy"}
    api.apply(json.dumps({**kind, "metadata": meta, "spec": spec}))
    with policy(world.lab, SPACE, MACHINE, egress=[{"action": "Drop", "to": [pod("web")]}]):
        becomes("to web", lambda: world.reached(NAME, world.pods["web"]), SHUT)
        assert world.reached(NAME, world.pods["other"]) == OPEN
        assert world.reached("outside", OURS) == OPEN
        theirs = api.get(f"{ROUTES}/v1beta1/namespaces/{others}/networkpolicies/q")["status"]
        assert (theirs["phase"], theirs["currentNodesRealized"]) == ("Realizing", 0)
        assert api.get(INFO)["nodeRef"]["namespace"] == SPACE
        api.kubectl("delete", "externalnode", NAME, "-n", others)
        wait_for("the end of the other ExternalEntity", lambda: not entity(world.lab, others), seconds=60)
        assert entity(world.lab, SPACE)
        assert api.get(INFO)["nodeRef"]["namespace"] == SPACE
        assert world.reached(NAME, world.pods["web"]) == SHUT


def test_writers_that_race_for_an_external_node_leave_what_the_last_one_wrote(world: World) -> None:
    """In its ExternalEntity, too, which is never missing meanwhile; and one that is deleted and made again at once is protected again."""
    api = world.lab.api
    missing: list[int] = []
    over = threading.Event()

    def looking() -> None:
        while not over.wait(0.02):
            if not entity(world.lab, SPACE):
                missing.append(1)

    def writing(writer: str) -> None:
        for number in range(12):
            node = external_node(SPACE, *OURS.values(), writer=writer, number=str(number))
            api.kubectl(
                "apply",
                "--server-side",
                "--force-conflicts",
                f"--field-manager={writer}",
                "-f",
                "-",
                stdin=json.dumps(node),
            )

    threads = [threading.Thread(target=writing, args=(writer,)) for writer in ("one", "two")]
    looker = threading.Thread(target=looking)
    for thread in (looker, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    path = f"{ROUTES}/v1alpha1/namespaces/{SPACE}/externalnodes/{NAME}"
    last = api.get(path)["metadata"]["labels"]
    becomes("labels of the ExternalEntity", lambda: labels(world.lab), last)
    over.set()
    looker.join()
    assert missing == []
    with policy(world.lab, SPACE, MACHINE, egress=[{"action": "Drop", "to": [pod("web")]}]):
        becomes("to web", lambda: world.reached(NAME, world.pods["web"]), SHUT)
        for _ in range(3):
            api.kubectl("replace", "--force", "-f", "-", stdin=json.dumps(external_node()))
        uid = api.get(path)["metadata"]["uid"]
        becomes("owner of the ExternalEntity", lambda: owner(world.lab), uid)
        becomes("interface", lambda: is_connected(world.lab), True)
        becomes("to web", lambda: world.reached(NAME, world.pods["web"]), SHUT)
        assert owner(world.lab) == uid


def labels(lab: Lab) -> dict[str, str]:
    found = entity(lab, SPACE)
    return dict(found["metadata"]["labels"]) if found else {}


def owner(lab: Lab) -> str:
    """UID of the ExternalNode that the ExternalEntity was made for."""
    found = entity(lab, SPACE)
    return str(found["metadata"]["ownerReferences"][0]["uid"]) if found else ""


def test_the_interface_is_given_back_when_the_external_node_is_deleted(world: World) -> None:
    """With its addresses and its ways; last, as the machine is then without a policy."""
    world.lab.api.kubectl("delete", "externalnode", NAME, "-n", SPACE)
    becomes("interface", lambda: is_connected(world.lab), False)
    for name in PODS:
        becomes(f"from {name}", partial(world.reached, name, OURS), OPEN)
        assert world.reached(NAME, world.pods[name]) == OPEN
