"""External IPs of a pool without subnetInfo whose owner is not heard: its switch port passes no ARP nor neighbour discovery for them, or its card
to them, and to kube-apiserver, is cut while gossip goes on by another card. They go to another Node.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from functools import partial
from typing import TYPE_CHECKING

import pytest
from admission_object import crd
from agent_node import in_agent, restart_agent, wait_ready
from external_address import reached
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods

from lab import fault, namespace
from lab.process import wait_for
from lab.settings import Settings
from lab.underlay import UNDERLAY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lab.cluster import Lab

pytestmark = pytest.mark.wide

IPS = {4: "172.30.0.219", 6: "fd00:172:30::219"}
NETWORKS = {4: "172.30.0.0/24", 6: "fd00:172:30::/64"}
MATCHES = {
    4: f"arp saddr ip {IPS[4]}",
    6: f"ip6 saddr {IPS[6]} icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }}",
}
"""Of a Node, what names the address as its own."""
QUESTIONS = {
    4: f"arp operation request arp saddr ip {IPS[4]} arp daddr ip != {IPS[4]}",
    6: f"ip6 saddr {IPS[6]} icmpv6 type nd-neighbor-solicit",
}
"""What it asks as the address."""
NODES = ("node-1", "node-2", "node-3")
HOME = "node-2"
UNHEARD = "ExternalIPsUnheard"
SERVICE = """
apiVersion: v1
kind: Service
metadata:
  name: heard
  annotations:
    service.antrea.io/external-ip-pool: heard4,heard6
    service.antrea.io/preferred-nodes: node-2
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  selector: {app: heard}
  ports: [{port: 80, targetPort: 8080}]
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """The Pod is on node-1; Nodes reach kube-apiserver by eth0, where the addresses are, and each other by eth1."""
    with own_lab("heard", Settings(nodes=3, family="dual", agent={"transportInterface": "eth1"})) as found:
        for version, ip in IPS.items():
            pool = {"ipRanges": [{"start": ip, "end": ip}], "nodeSelector": {}}
            found.api.apply(json.dumps(crd("ExternalIPPool", f"heard{version}", pool)))
        found.api.apply(SERVICE)
        with quiet_pods(found, {"heard": "node-1"}, SERVING):
            found.api.kubectl("label", "pod", "heard", "app=heard")
            wait_for("the addresses at home", partial(at_home, found), seconds=90)
            yield found


def owners(lab: Lab) -> dict[str, str]:
    """Node by address, as the agent of node-1 finds it."""
    rows = json.loads(in_agent(lab, "node-1", "antctl", "get", "serviceexternalip", "-o", "json"))
    return {row["externalIP"]: row.get("assignedNode", "") for row in rows}


def at_home(lab: Lab) -> bool:
    return owners(lab) == dict.fromkeys(IPS.values(), HOME)


def gone(lab: Lab, ips: Sequence[str]) -> bool:
    found = owners(lab)
    return all(found[ip] not in ("", HOME) for ip in ips)


def at_port(lab: Lab, match: str, verdict: str) -> None:
    """At the switch port of the Node, of what it sends; no match: nothing any more."""
    lines = ["nft 'add table netdev heard; delete table netdev heard'"]
    if match:
        chain = (
            f'chain sent {{ type filter hook ingress device "{HOME}.eth0" priority 0; {match} {verdict}; }}'
        )
        lines.append(f"nft 'table netdev heard {{ {chain}; }}'")
    namespace.script(lab.record, namespace.path(lab.record, UNDERLAY), lines)


@contextlib.contextmanager
def inspected(lab: Lab, version: int) -> Iterator[None]:
    """The port drops what has the external IP as its sender, once the Node has asked and was answered as that a few times."""
    inside = namespace.inside(
        namespace.path(lab.record, UNDERLAY), ["nft", "list", "table", "netdev", "heard"]
    )
    at_port(lab, QUESTIONS[version], "counter")
    wait_for("questions as the address", lambda: "packets 0 " not in read(inside), seconds=30)
    at_port(lab, MATCHES[version], "drop")
    try:
        yield
    finally:
        at_port(lab, "", "")


def read(argv: Sequence[str]) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("version", [4, 6])
def test_an_address_for_which_the_switch_port_passes_no_answers_goes_to_another_node(
    lab: Lab, version: int
) -> None:
    ip, other = IPS[version], IPS[10 - version]
    for one in IPS.values():
        reached(lab, one)
    with inspected(lab, version):
        wait_for("a next Node", partial(gone, lab, [ip]), seconds=60)
        assert owners(lab)[other] == HOME
        reached(lab, ip)
        wait_for("the Event of the Node", partial(has_event, lab, UNHEARD, f"no longer as {ip}"), seconds=60)
        moved = (f"took over {ip} from {HOME} in ", f"unheard: in {NETWORKS[version]}")
        wait_for("the Event of the move", partial(has_event, lab, "ExternalIPTakenOver", *moved), seconds=30)
        # findings are its exit status
        wait_for(
            "the doctor",
            lambda: f"no longer as {ip}" in in_agent(lab, HOME, "sh", "-c", "antctl doctor || true"),
            seconds=120,
        )
    restart_agent(lab, HOME)  # else it leaves the addresses to others for ten minutes
    wait_ready(lab, HOME)
    wait_for("the addresses at home", partial(at_home, lab), seconds=90)


def has_event(lab: Lab, reason: str, *texts: str) -> bool:
    """Whether there is one whose message has all these texts."""
    words = ("get", "events", "-A", f"--field-selector=reason={reason}", "-o", "json")
    told = [one["message"] for one in json.loads(lab.api.kubectl(*words))["items"]]
    return any(all(text in one for text in texts) for one in told)


def test_a_node_that_is_cut_from_kube_apiserver_and_from_the_addresses_at_once_hands_them_over(
    lab: Lab,
) -> None:
    for one in IPS.values():
        reached(lab, one)
    fault.inject(lab, HOME, "cut-link", link="eth0")
    try:
        wait_for("a next Node", partial(gone, lab, [*IPS.values()]), seconds=60)
        for one in IPS.values():
            reached(lab, one)
    finally:
        fault.inject(lab, HOME, "heal-link", link="eth0")
    wait_for("the addresses at home", partial(at_home, lab), seconds=90)
    wait_for("the Event of the Node", partial(has_event, lab, UNHEARD, "no neighbour answers"), seconds=60)
    for one in IPS.values():
        reached(lab, one)
