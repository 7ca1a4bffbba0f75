"""One value of the chart, and connections are in the flow aggregator's store: `antctl get flows` on a workstation prints them, killed or not."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import workstation
import yaml
from agent_node import pod_namespace
from config_map import ConfigMap, wait_value
from quiet_pod import SERVING, quiet_pods

from antrea.errors import Unavailable
from lab import cluster, flow_visibility
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

HERE = Path(__file__).parent
FILE = "flow-aggregator.conf"
pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]
CLOSED = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: store-in, namespace: default}
spec:
  podSelector: {matchLabels: {store: serves}}
  ingress: [{ports: [{port: 8080}]}]
"""


@contextlib.contextmanager
def exporting(lab: Lab, values: list[str], **keys: str) -> Iterator[None]:
    """Agents get the configuration that the chart renders of these values, as far as it is about flows, with these keys of flowExporter."""
    flow_visibility.import_image(lab, print)
    ours, agent = flow_visibility.rendered(values)
    lab.api.apply(yaml.safe_dump_all(ours))
    config = ConfigMap(lab)
    config.change(featureGates=agent["featureGates"], flowExporter=agent["flowExporter"] | keys)
    wait_value(lab, "featureGates", agent["featureGates"])
    rollout = ("rollout", "status", "deployment/flow-aggregator", "--timeout=180s")
    lab.api.kubectl("-n", "flow-aggregator", *rollout, seconds=190)
    yield
    config.write(config.text)
    wait_value(lab, "featureGates", {})
    # to its end: the next test makes it again
    lab.api.kubectl("delete", "namespace", "flow-aggregator", "--timeout=120s", seconds=130)


@pytest.fixture
def aggregator(lab: Lab) -> Iterator[None]:
    """With agents that export soon."""
    with exporting(lab, flow_visibility.sets(lab), flowPollInterval="1s", activeFlowExportTimeout="1s"):
        yield


def flows(lab: Lab, *words: str) -> list[dict[str, Any]]:
    """What antctl prints on a workstation; nothing while it cannot."""
    done = subprocess.run(
        workstation.command(lab, "get", "flows", "-o", "json", *words),
        capture_output=True, text=True, check=False, timeout=60, env=workstation.environment(),
    )  # fmt: skip
    found: list[dict[str, Any]] = json.loads(done.stdout)["rows"] if done.returncode == 0 else []
    return found


@pytest.mark.usefixtures("aggregator")
def test_connections_are_in_the_store_and_stay_there_when_the_aggregator_is_killed(lab: Lab) -> None:
    places = {"store-asks": "node-1", "store-serves": "node-2"}
    with quiet_pods(lab, places, SERVING) as ips:
        lab.api.kubectl("label", "pod", "store-serves", "store=serves")
        lab.api.apply(CLOSED)
        client, server = ips["store-asks"], ips["store-serves"]
        from_pod = pod_namespace(lab, "node-1", client)

        def connect(port: int) -> None:
            subprocess.run(
                [*from_pod, "curl", "-s", "-o", "/dev/null", "--max-time", "2", f"http://{server}:{port}/"],
                check=False,
            )

        def denied() -> list[dict[str, Any]]:
            connect(8081)
            return flows(lab, "--pod", "default/store-asks", "--action", "denied", "--port", "8081")

        def allowed() -> list[dict[str, Any]]:
            connect(8080)
            rows = flows(lab, "--srcip", client, "--port", "8080")
            return [row for row in rows if row["ingressNetworkPolicyName"] == "store-in"]

        row = wait_for("the connection in the store, with its policy", allowed, seconds=90)[0]
        ends = [row[f"{end}{what}"] for end in ("source", "destination") for what in ("PodName", "NodeName")]
        assert ends == ["store-asks", "node-1", "store-serves", "node-2"]
        wait_for("the denied connection in the store", denied, seconds=90)
        before = len(flows(lab, "--srcip", client))
        kill = ("exec", "deploy/flow-aggregator", "--", "python3", "-c", "import os; os.kill(1, 9)")
        with contextlib.suppress(Unavailable):
            lab.api.kubectl("-n", "flow-aggregator", *kill)
        wait_for(
            "its records after SIGKILL", lambda: len(flows(lab, "--srcip", client)) >= before, seconds=90
        )
        lab.api.kubectl("delete", "networkpolicy", "store-in")


@pytest.mark.usefixtures("aggregator")
def test_recommended_policies_let_pass_what_was_seen_and_close_the_rest(lab: Lab) -> None:
    places = {"seen-asks": "node-1", "seen-serves": "node-2", "seen-other": "node-1"}
    with quiet_pods(lab, places, SERVING) as ips:
        for name in places:
            lab.api.kubectl("label", "pod", name, f"seen={name.removeprefix('seen-')}")

        def opens(source: str, target: str, port: int) -> bool:
            node, address = places[source], ips[source]
            words = ["curl", "-s", "-o", "/dev/null", "--max-time", "2", f"http://{ips[target]}:{port}/"]
            done = subprocess.run([*pod_namespace(lab, node, address), *words], check=False)
            return done.returncode == 0

        def recommended() -> str:
            done = subprocess.run(
                workstation.command(lab, "policy", "recommend", "-n", "default", "--since", "10m"),
                capture_output=True, text=True, check=False, timeout=60, env=workstation.environment(),
            )  # fmt: skip
            names = ("recommended-seen-asks", "recommended-seen-serves")
            return done.stdout if all(name in done.stdout for name in names) else ""

        assert opens("seen-asks", "seen-serves", 8080)
        policies = wait_for("policies of what was seen", recommended, seconds=90)
        assert "recommended-seen-other" not in policies
        assert opens("seen-other", "seen-serves", 8080)
        lab.api.apply(policies)
        try:
            wait_for("the isolation", lambda: not opens("seen-other", "seen-serves", 8080), seconds=60)
            assert opens("seen-asks", "seen-serves", 8080)
            assert not opens("seen-serves", "seen-asks", 8080)
            assert not opens("seen-asks", "seen-other", 8080)
        finally:
            names = [one["metadata"]["name"] for one in yaml.safe_load_all(policies)]
            lab.api.kubectl("-n", "default", "delete", "networkpolicies", *names)


@pytest.mark.usefixtures("aggregator")
def test_a_user_of_one_namespace_sees_its_connections_on_the_web_page(lab: Lab, tmp_path: Path) -> None:
    """A token of the cluster, a RoleBinding, port-forward, and a real browser."""
    binding = ("rolebinding", "page-sees-flows", "-n", "default")
    role = ("--clusterrole=antrea-flow-viewer", "--serviceaccount=default:default")
    lab.api.kubectl("create", *binding, *role)
    with quiet_pods(lab, {"page-asks": "node-1", "page-serves": "node-2"}, SERVING) as ips:
        lab.api.kubectl("label", "pod", "page-serves", "store=serves")
        lab.api.apply(CLOSED)
        from_pod = pod_namespace(lab, "node-1", ips["page-asks"])

        def denied() -> list[dict[str, Any]]:
            for port in (8080, 8081):
                url = f"http://{ips['page-serves']}:{port}/"
                fetched = [*from_pod, "curl", "-s", "-o", "/dev/null", "--max-time", "2", url]
                subprocess.run(fetched, check=False)
            return flows(lab, "--pod", "default/page-asks", "--action", "denied")

        wait_for("the denied connection in the store", denied, seconds=90)
        token = lab.api.kubectl("-n", "default", "create", "token", "default").strip()
        with flow_visibility.forwarded(lab) as port:
            url = f"https://127.0.0.1:{port}"
            words = [sys.executable, str(HERE / "page_visit.py"), str(tmp_path), url, token, "default"]
            paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
            visited = cluster.enter(lab, "control", [*words, "default/page-serves"])
            shown = json.loads(
                subprocess.check_output(visited, text=True, timeout=120, env=os.environ | paths)
            )
        assert "default/page-asks" in shown["flows"]
        assert "Drop" in shown["flows"]
        assert "default/page-asks" in shown["map"]
        assert "default/store-in" in shown["policies"]
        lab.api.kubectl("delete", "networkpolicy", "store-in")
    lab.api.kubectl("delete", *binding)


def findings(lab: Lab) -> list[str]:
    """What `antctl doctor` on a workstation finds of the flow aggregator, with its severity."""
    done = subprocess.run(
        workstation.command(lab, "doctor", "-o", "json"),
        capture_output=True, text=True, check=False, timeout=120, env=workstation.environment(),
    )  # fmt: skip
    rows: list[dict[str, str]] = json.loads(done.stdout)
    return [f"{row['severity']}: {row['finding']}" for row in rows if row["check"] == "flow-aggregator"]


class AggregatorConfig:
    """The ConfigMap of the aggregator."""

    def __init__(self, lab: Lab) -> None:
        self._about = ("-n", "flow-aggregator", "configmap", "flow-aggregator-configmap")
        self._lab = lab
        data = json.loads(lab.api.kubectl("get", *self._about, "-o", "json"))["data"]
        self._values: dict[str, Any] = yaml.safe_load(data[FILE])
        self._changes = 0

    def change(self, **values: Any) -> None:
        """To what it was at first, with these."""
        text = yaml.safe_dump({**self._values, **values})
        self._lab.api.kubectl("patch", *self._about, "--type=merge", "-p", json.dumps({"data": {FILE: text}}))
        # kubelet brings it to a Pod that changes at once, and to others within two minutes
        self._changes += 1
        pods = ("-n", "flow-aggregator", "pods", "-l", "app=flow-aggregator", f"changes={self._changes}")
        self._lab.api.kubectl("annotate", *pods, "--overwrite")


@pytest.mark.usefixtures("aggregator")
def test_the_doctor_of_the_cluster_names_what_the_aggregator_refuses_and_where_records_do_not_go(
    lab: Lab,
) -> None:
    """A configuration that cannot work, a collector that is away, and a store whose disk is full."""
    wait_for("no finding", lambda: not findings(lab), seconds=60)
    config, collector = AggregatorConfig(lab), {"enable": True, "address": "127.0.0.1:9:tcp"}
    with quiet_pods(lab, {"doctor-asks": "node-1", "doctor-serves": "node-2"}, SERVING) as ips:
        words = ("curl", "-s", "-o", "/dev/null", "--max-time", "2", f"http://{ips['doctor-serves']}:8080/")
        asking = [*pod_namespace(lab, "node-1", ips["doctor-asks"]), *words]

        def found(*texts: str) -> bool:
            """Whether there is one finding with all of these, and no other."""
            subprocess.run(asking, check=False)
            one, *others = findings(lab) or [""]
            return not others and all(text in one for text in texts)

        config.change(mode="Both")
        wait_for(
            "the refused configuration",
            lambda: found("error: Pod flow-aggregator/", "refuses its configuration", "mode: 'Both'"),
            seconds=90,
        )
        config.change(flowCollector=collector)
        wait_for(
            "the collector that is away",
            lambda: found("warning: flowCollector of Pod", "takes no records", "127.0.0.1"), seconds=90,
        )  # fmt: skip
        config.change()
        wait_for("no finding", lambda: not findings(lab), seconds=90)
        volume = {"name": "store", "emptyDir": {"medium": "Memory", "sizeLimit": "100Mi"}}
        patch = json.dumps({"spec": {"template": {"spec": {"volumes": [volume]}}}})
        lab.api.kubectl("-n", "flow-aggregator", "patch", "deployment/flow-aggregator", "-p", patch)
        wait_for(
            "the full store",
            lambda: found("warning: store of Pod", "takes no records", "free space"), seconds=180,
        )  # fmt: skip
