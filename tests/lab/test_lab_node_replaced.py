"""A Node is deleted and added again under its name and Pod CIDRs as another machine: its peers follow at once, in both families."""

from __future__ import annotations

import json
import re
import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from admission_object import crd
from agent_node import antctl, in_agent, pod_namespace, wait_ready
from outside_host import source_of
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods
from replaced_node import bring, throw_away

from antrea.errors import Unavailable
from lab import cluster, node
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(2400)]
SETTINGS = Settings(nodes=3, family="dual", kube_proxy="none", proxy_all=True)
PEERS, NAME = ("node-1", "node-3"), "node-2"
IPS = {4: "172.31.0.210", 6: "fd00:172:31::210"}
"""Egress IPs that only the replaced Node may hold."""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: far}
spec: {ipFamilyPolicy: PreferDualStack, selector: {app: far}, ports: [{port: 80, targetPort: 8080}]}
"""


@pytest.fixture(scope="module")
def three() -> Iterator[Lab]:
    """An Egress for each family whose pool selects the Node by name, for Pods labelled egress=web; a Service for app=far."""
    with own_lab("rep", SETTINGS) as lab:
        lab.api.apply(SERVICE)
        here = {"matchLabels": {"kubernetes.io/hostname": NAME}}
        for version, ip in IPS.items():
            pool = {"ipRanges": [{"start": ip, "end": ip}], "nodeSelector": here}
            lab.api.apply(json.dumps(crd("ExternalIPPool", f"only-{version}", pool)))
            spec = {
                "appliedTo": {"podSelector": {"matchLabels": {"egress": f"web{version}"}}},
                "externalIPPool": f"only-{version}",
            }
            lab.api.apply(json.dumps(crd("Egress", f"web{version}", spec)))
        yield lab


def answers(words: list[str], ip: str, port: int, wanted: str) -> bool:
    """Whether this Pod says its name there."""
    host = f"[{ip}]" if ":" in ip else ip
    done = subprocess.run(
        [*words, "curl", "-gs", "--max-time", "2", f"http://{host}:{port}/hostname"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() == wanted


def addresses(lab: Lab, kind: str, name: str) -> list[str]:
    found = json.loads(lab.api.kubectl("get", kind, name, "-o", "json"))
    if kind == "service":
        return list(found["spec"]["clusterIPs"])
    return [one["ip"] for one in found["status"]["podIPs"]]


def own_addresses(lab: Lab) -> list[str]:
    """All of the machine's cards."""
    return [one.partition("/")[0] for nic in lab.topology.machine(NAME).nics for one in nic.addresses]


def ours(lab: Lab) -> dict[str, str]:
    """The annotations that its agent writes on its Node."""
    found: dict[str, Any] = json.loads(lab.api.kubectl("get", "node", NAME, "-o", "json"))
    return {key: text for key, text in found["metadata"].get("annotations", {}).items() if "antrea.io" in key}


def traces(lab: Lab, where: str, gone: list[str]) -> list[str]:
    """What a peer still has of these addresses: flows, ports, routes, neighbours and members."""
    shown = {
        "flows": in_agent(lab, where, "ovs-ofctl", "-O", "OpenFlow15", "dump-flows", "br-int"),
        "ports": in_agent(lab, where, "ovs-vsctl", "--columns=options", "list", "Interface"),
        "members": antctl(lab, where, "get", "memberlist"),
    }
    for name, words in {
        "routes": ("ip route", "ip -6 route"),
        "rules": ("nft list table inet antrea",),
    }.items():
        shown[name] = node.execute(lab.record, where, "sh", "-c", "; ".join(words) + " || true")
    return [
        f"{where}: {name} name {ip}"
        for name, text in shown.items()
        for ip in gone
        if re.search(rf"(?<![0-9a-f.:]){re.escape(ip)}(?![0-9a-f.:])", text)
        or (ip.count(".") == 3 and f"{hexadecimal(ip)}->" in text)
    ]


def hexadecimal(ip: str) -> str:
    """An IPv4 address as flows load it."""
    return f"0x{int.from_bytes(bytes(map(int, ip.split('.')))):x}"


def source(lab: Lab, pod: str, version: int) -> str:
    try:
        return source_of(lab, pod, version)
    except (Unavailable, AssertionError):
        return ""


@pytest.mark.parametrize(("host", "serial"), [(31, 1), (31, 2), (12, 3)], ids=["other", "same-ip", "old-ip"])
def test_peers_follow_a_node_that_is_another_machine(three: Lab, host: int, serial: int) -> None:
    lab, before = three, own_addresses(three)
    with quiet_pods(lab, {**{name: name for name in PEERS}, "far": NAME}, SERVING):
        lab.api.kubectl("label", "pod", "far", "app=far")
    old = throw_away(lab, NAME)
    bring(lab, old, host, serial)
    wait_for("a Ready Node", lambda: not cluster.not_ready(lab, "/api/v1/nodes"), seconds=180)
    wait_ready(lab, NAME)
    began = time.monotonic()
    with quiet_pods(lab, {**{name: name for name in PEERS}, "far": NAME}, SERVING) as pods:
        lab.api.kubectl("label", "pod", "far", "app=far")
        clients = {where: pod_namespace(lab, where, pods[where]) for where in PEERS}
        for where, client in clients.items():
            for ip in addresses(lab, "pod", "far"):
                wait_for(
                    f"far from {where} at {ip}",
                    partial(answers, client, ip, 8080, "far"),
                    seconds=60,
                )
            for ip in addresses(lab, "service", "far"):
                wait_for(f"the Service from {where}", partial(answers, client, ip, 80, "far"), seconds=60)
            for ip in addresses(lab, "pod", where):
                back = pod_namespace(lab, NAME, pods["far"])
                wait_for(f"{where} from far", partial(answers, back, ip, 8080, where), seconds=60)
        print(
            f"{host}/{serial}: peers reach its Pods {time.monotonic() - began:.1f} s after its agent is ready"
        )
        for version, ip in IPS.items():
            lab.api.kubectl("label", "pod", *PEERS, "--overwrite", f"egress=web{version}")
            for where in PEERS:
                wait_for(f"the Egress IP of {where}", partial(leaves_as, lab, where, version, ip), seconds=60)
            status = json.loads(lab.api.kubectl("get", "egress", f"web{version}", "-o", "json"))["status"]
            assert (status["egressNode"], status["egressIP"]) == (NAME, ip)
        assert_followed(lab, [ip for ip in before if ip not in own_addresses(lab)])


def leaves_as(lab: Lab, pod: str, version: int, ip: str) -> bool:
    return source(lab, pod, version) == ip


def assert_followed(lab: Lab, gone: list[str]) -> None:
    """Annotations, members and infos are of the new machine, and no peer has a trace of the addresses that are gone."""
    wait_for("its annotations", lambda: ours(lab), seconds=30)
    told = ours(lab)
    fabric = [ip for ip in own_addresses(lab) if ip.startswith(("172.31.", "fd00:172:31:"))]
    assert told["node.antrea.io/transport-addresses"].split(",") == fabric
    info = json.loads(lab.api.kubectl("get", "antreaagentinfo", NAME, "-o", "json"))
    assert info["nodeRef"]["name"] == NAME
    for where in (*PEERS, NAME):
        wait_for(f"all members at {where}", partial(members, lab, where), seconds=60)
        wait_for(
            f"no trace at {where}: {traces(lab, where, gone)}",
            lambda w=where: not traces(lab, w, gone),  # type: ignore[misc]
            seconds=60,
        )


def members(lab: Lab, where: str) -> bool:
    """Whether its agent finds all three alive, the new one at its address."""
    rows = [line.split() for line in antctl(lab, where, "get", "memberlist").splitlines()[1:]]
    there = {name: ip for name, ip, status in rows if status == "Alive"}
    return len(there) == 3 and there[NAME] in own_addresses(lab)
