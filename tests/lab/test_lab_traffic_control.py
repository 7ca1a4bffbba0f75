"""Suricata on the Nodes of a cluster, by the files of examples/traffic-control: an attack is found in copies, stopped in redirected packets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import workstation
import yaml
from docs_example import Workstation, block, commands
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods

from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]
EXAMPLES = Path(__file__).parents[2] / "examples/traffic-control"
GATES = {"featureGates": {"TrafficControl": True, "L7NetworkPolicy": True}}
"""The second one brings the image with Suricata."""
PODS = {"web": "node-1", "near": "node-1", "far": "node-2"}
HARMLESS, ATTACK = "/hostname", "/clientip?file=../../etc/passwd"
IDS_PODS = ("-n", "kube-system", "get", "pods", "-l", "app=suricata", "-o", "json")


@pytest.fixture(scope="module")
def two() -> Iterator[Lab]:
    settings = Settings(
        nodes=2, family="dual", agent=GATES, controller=GATES, proxy_all=True, kube_proxy="none"
    )
    with own_lab("steering", settings) as lab:
        yield lab


@pytest.fixture(scope="module")
def urls(two: Lab) -> Iterator[list[str]]:
    """Of Pod web, in both families."""
    with quiet_pods(two, PODS, SERVING):
        two.api.kubectl("label", "pod", "web", "app=web")
        found = json.loads(two.api.kubectl("get", "pod", "web", "-o", "json"))["status"]["podIPs"]
        ips = [one["ip"] for one in found]
        yield [f"http://{f'[{ip}]' if ':' in ip else ip}:8080" for ip in ips]


def config_map(name: str, action: str) -> str:
    data = {
        "suricata.yaml": (EXAMPLES / f"{name}.yaml").read_text(),
        "local.rules": (EXAMPLES / "local.rules").read_text().replace("alert", action, 1),
    }
    meta = {"name": "suricata", "namespace": "kube-system"}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})


def engine(lab: Lab, name: str, action: str = "alert") -> None:
    """Suricata on both Nodes with this configuration."""
    lab.api.apply(config_map(name, action))
    lab.api.apply(daemon_set(lab))
    rolled_out(lab)


def daemon_set(lab: Lab) -> str:
    """That of the example, with the lab's image."""
    agents = json.loads(lab.api.kubectl("-n", "kube-system", "get", "ds", "antrea-agent", "-o", "json"))
    containers = agents["spec"]["template"]["spec"]["containers"]
    image = next(one["image"] for one in containers if one["name"] == "antrea-l7-engine")
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / "suricata.yaml").read_text())
    found["spec"]["template"]["spec"]["containers"][0] |= {"image": image, "imagePullPolicy": "Never"}
    return yaml.safe_dump(found)


def rolled_out(lab: Lab) -> None:
    lab.api.kubectl("-n", "kube-system", "rollout", "status", "ds/suricata", "--timeout=120s", seconds=150)


def by_the_page(lab: Lab, folder: Path) -> None:
    """Copies to Suricata, by the commands that docs/traffic-control.md prints."""
    examples = folder / "traffic-control"
    shutil.copytree(EXAMPLES, examples)
    (examples / "suricata.yaml").write_text(daemon_set(lab))
    script = commands(block("traffic-control.md", "create configmap suricata"))
    made, _, _ = script.partition("\nkubectl -n kube-system logs")
    Workstation(lab, folder).run(f"cd {examples}\n{made}")
    rolled_out(lab)


def asked(lab: Lab, client: str, url: str) -> bool:
    """Whether a request of a Pod gets an answer."""
    return bool(lab.api.kubectl("exec", client, "--", "sh", "-c", f"curl -s -m 3 -g -o /dev/null '{url}' && echo yes || true"))  # fmt: skip


def alerts(lab: Lab) -> list[Mapping[str, Any]]:
    """Of the Node of Pod web."""
    pods = json.loads(lab.api.kubectl(*IDS_PODS))["items"]
    names = [one["metadata"]["name"] for one in pods if one["spec"]["nodeName"] == "node-1"]
    lines = lab.api.kubectl("-n", "kube-system", "logs", names[0]).splitlines() if names else []
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return [one for one in events if one.get("event_type") == "alert"]


def traced(lab: Lab, name: str, source: str, destination: str) -> list[tuple[str, str, str]]:
    """Component, action and what it is about, of all Nodes."""
    packet = {"transportHeader": {"tcp": {"dstPort": 8080}}}
    ends = {"source": {"namespace": "default", "pod": source}, "destination": {"namespace": "default", "pod": destination}}  # fmt: skip
    head = {"apiVersion": "crd.antrea.io/v1beta1", "kind": "Traceflow", "metadata": {"name": name}}
    lab.api.apply(yaml.safe_dump({**head, "spec": {**ends, "packet": packet}}))

    def status() -> dict[str, Any]:
        found = json.loads(lab.api.kubectl("get", "traceflow", name, "-o", "json"))
        return dict(found.get("status", {}))

    wait_for(f"the end of {name}", lambda: status().get("phase") in ("Succeeded", "Failed"), seconds=60)
    found = status()
    assert found["phase"] == "Succeeded", found
    rows = [row for result in found["results"] for row in result["observations"]]
    return [(row["component"], row["action"], row.get("componentInfo", "")) for row in rows]


def explained(lab: Lab, code: int = 0) -> str:
    """4 where policies let pass what the switch drops."""
    asks = ("explain", "--from", "default/far", "--to", "default/web", "--port", "8080/tcp")
    return str(workstation.run(lab, *asks, code=code).stdout)


def test_an_attack_is_found_in_copies_and_the_way_of_packets_is_told(
    two: Lab, urls: list[str], tmp_path: Path
) -> None:
    by_the_page(two, tmp_path)

    def found() -> bool:
        return {one["src_ip"].count(":") > 0 for one in alerts(two)} == {False, True}

    def attacked() -> bool:
        assert all(asked(two, "far", f"{url}{path}") for url in urls for path in (HARMLESS, ATTACK))
        return found()

    wait_for("alerts in both families", attacked, seconds=120)
    assert {one["http"]["url"] for one in alerts(two)} == {ATTACK}
    for source, destination in (("far", "web"), ("web", "far"), ("near", "web")):
        steps = traced(two, f"{source}-{destination}", source, destination)
        assert ("TrafficControl", "Mirrored", "ids") in steps
        assert ("Forwarding", "Delivered", "Output") in steps
    text = explained(two)
    assert (
        "TrafficControl ids of Pod default/web, received on Node node-1: a copy goes to internal port ids0."
        in text
    )
    two.api.kubectl("delete", "trafficcontrol", "ids")
    two.api.kubectl("-n", "kube-system", "delete", "ds", "suricata")


def test_an_attack_is_stopped_in_redirected_packets_and_nothing_bypasses_the_engine(
    two: Lab, urls: list[str]
) -> None:
    two.api.apply((EXAMPLES / "redirect.yaml").read_text())

    def closed() -> bool:
        return not any(asked(two, client, f"{url}{HARMLESS}") for url in urls for client in ("far", "near"))

    wait_for("nothing passes without the engine", closed, seconds=60)
    engine(two, "suricata-ips", "drop")

    def opened() -> bool:
        return all(asked(two, client, f"{url}{HARMLESS}") for url in urls for client in ("far", "near"))

    wait_for("what is harmless passes", opened, seconds=120)
    for url in urls:
        for client in ("far", "near"):
            assert not asked(two, client, f"{url}{ATTACK}"), (client, url)
            assert asked(two, client, f"{url}{HARMLESS}"), (client, url)
    assert {one["alert"]["action"] for one in alerts(two)} == {"blocked"}
    steps = traced(two, "redirected", "far", "web")
    assert ("TrafficControl", "Redirected", "ips") in steps
    assert ("Forwarding", "Delivered", "Output") in steps
    assert "it goes to internal port ids0, and comes back by internal port ids1." in explained(two)
    two.api.kubectl("-n", "kube-system", "delete", "ds", "suricata")
    wait_for("nothing passes any more", closed, seconds=60)
    two.api.kubectl("delete", "trafficcontrol", "ips")
    wait_for("all passes", opened, seconds=60)


def test_a_missing_device_is_named_by_explain_doctor_and_an_event(two: Lab, urls: list[str]) -> None:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / "redirect.yaml").read_text())
    found["metadata"]["name"] = "lost"
    found["spec"] |= {"targetPort": {"device": {"name": "nodev0"}}}
    del found["spec"]["returnPort"]
    two.api.apply(yaml.safe_dump(found))
    wait_for("closed", lambda: not asked(two, "far", f"{urls[0]}{HARMLESS}"), seconds=60)
    why = "'nodev0' of lost (there is no such device)"
    unmet = f"- Not realized: ports of TrafficControls are not on the bridge: {why}"
    wait_for("the condition", lambda: unmet in explained(two, code=4), seconds=120)
    assert why in workstation.run(two, "doctor", code=1).stdout
    events = ("get", "events", "-A", "--field-selector", "reason=TrafficControlPortMissing", "-o", "json")
    messages = [one["message"] for one in json.loads(two.api.kubectl(*events))["items"]]
    assert messages == ["Port 'nodev0': there is no such device: packets of its Pods are dropped"]
    assert ("TrafficControl", "Dropped", "lost") in traced(two, "dropped", "far", "web")
    two.api.kubectl("delete", "trafficcontrol", "lost")


JUDGED = """
apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {name: judged, namespace: default}
spec:
  priority: 5
  tier: application
  appliedTo: [{podSelector: {matchLabels: {app: web}}}]
  ingress:
    - name: requests
      action: Allow
      from: [{podSelector: {}}]
      l7Protocols: [{http: {method: GET, path: "/host*"}}]
"""


def test_what_an_l7_engine_judges_is_traced_and_told_to_be_no_copy(two: Lab, urls: list[str]) -> None:
    two.api.apply((EXAMPLES / "mirror.yaml").read_text())
    two.api.apply(JUDGED)

    def judges() -> bool:
        return asked(two, "far", f"{urls[0]}/hostname") and not asked(two, "far", f"{urls[0]}/clientip")

    wait_for("requests are judged", judges, seconds=60)
    for source in ("far", "near"):
        steps = traced(two, f"judged-{source}", source, "web")
        assert ("NetworkPolicy", "Redirected", "L7NetworkPolicy") in steps
        assert ("Forwarding", "Redirected", "Output") in steps
    told = "rules with l7Protocols judge are neither copied nor redirected by TrafficControls ids: "
    wait_for("the condition", lambda: told in explained(two), seconds=120)
    two.api.kubectl("delete", "networkpolicies.crd.antrea.io", "judged")
    two.api.kubectl("delete", "trafficcontrol", "ids")
