"""The examples of four pages on single connections do what the pages say, as they are printed there."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import outside_host
import pytest
import sftp_server
import yaml
from config_map import ConfigMap, wait_value
from docs_example import Workstation, block, commands
from quiet_pod import POD, SERVING, standing
from test_lab_support_bundle_collection import GATE as BUNDLES
from test_lab_support_bundle_collection import conditions, serving
from test_lab_support_bundle_collection import gate as bundles_gate

from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import Lab

pytestmark = pytest.mark.wide
bundles = bundles_gate
"""The gate in both programs."""


@pytest.fixture
def desk(lab: Lab, tmp_path: Path) -> Workstation:
    return Workstation(lab, tmp_path)


@contextlib.contextmanager
def configured(lab: Lab, key: str, wanted: Any, **values: Any) -> Iterator[None]:
    """The agents run with these values, of which the one of `key` is waited for."""
    config = ConfigMap(lab)
    config.change(**values)
    try:
        wait_value(lab, key, wanted)
        yield
    finally:
        config.write(config.text)


def gate(lab: Lab, name: str) -> contextlib.AbstractContextManager[None]:
    return configured(lab, "featureGates", {name: True}, featureGates={name: True})


def pod(name: str, where: str, app: str) -> str:
    text = POD.replace("{name: NAME}", f"{{name: {name}, labels: {{app: {app}}}}}")
    return text.replace("NODE", where).replace("ARGS", SERVING)


def test_the_first_trace_prints_what_the_page_says(lab: Lab, desk: Workstation) -> None:
    try:
        printed = desk.run(commands(block("traceflow.md", "antctl traceflow -S")))
    finally:
        lab.api.kubectl("delete", "deployment", "web", "--ignore-not-found", "--wait=false")
    found = yaml.safe_load(printed[printed.index("destination:") :])
    assert found["phase"] == "Succeeded"
    last = found["results"][-1]["observations"][-1]
    assert (last["action"], last["component"], last["componentInfo"]) == ("Delivered", "Forwarding", "Output")


def test_round_trip_times_are_printed(lab: Lab, desk: Workstation) -> None:
    text = block("node-latency.md", "kind: NodeLatencyMonitor")
    with gate(lab, "NodeLatencyMonitor"):
        try:
            script = commands(text)
            ask = "kubectl get nodelatencystats"
            desk.run(script.partition(f"\n{ask}")[0])
            shown = ""

            def rows() -> bool:
                nonlocal shown
                shown = desk.run(ask)
                return len(shown.splitlines()) == 1 + len(lab.topology.nodes)

            wait_for("a row of each Node", rows, seconds=60)
        finally:
            lab.api.kubectl("delete", "nodelatencymonitors", "--all")
    header = next(line for line in text.splitlines() if line.startswith("NODE NAME"))
    assert shown.splitlines()[0].split() == header.split()


def test_a_port_of_a_pod_answers_outside(lab: Lab, desk: Workstation) -> None:
    text = block("node-port-local.md", "kind: Service")
    values = yaml.safe_load(text.partition("kubectl")[0])
    script = commands(text)
    ask = next(line for line in script.splitlines() if line.startswith("kubectl get pod web-1"))
    with (
        configured(lab, "nodePortLocal.enable", True, **values),
        standing(lab, pod("web-1", "node-2", "web"), ["web-1"]),
    ):
        try:
            desk.run(script.partition(ask)[0])
            wait_for("its annotation", lambda: desk.run(ask), seconds=60)
            (row,) = json.loads(desk.run(ask))
        finally:
            lab.api.kubectl("delete", "service", "web", "--ignore-not-found", "--wait=false")
        said = json.loads(next(line for line in text.splitlines() if line.startswith("[{")))[0]
        assert row.keys() == said.keys()
        assert {key: row[key] for key in ("podPort", "protocol", "ipFamily")} == {
            key: said[key] for key in ("podPort", "protocol", "ipFamily")
        }


@pytest.mark.usefixtures("bundles")
def test_a_bundle_is_at_the_file_server(lab: Lab, desk: Workstation, tmp_path: Path) -> None:
    page, folder = "support-bundle-collection.md", tmp_path / "server"
    folder.mkdir()
    prepare = commands(block(page, "create namespace ops"))
    text = commands(block(page, f"kind: {BUNDLES}"))
    apply = text[: text.index("\nkubectl wait")].replace("worker-1", "node-1")
    wait = text.splitlines()[-1]
    desk.run(prepare.replace("username=bundles", f"username={sftp_server.USER}").replace("password=...", f"password={sftp_server.PASSWORD}"))  # fmt: skip
    try:
        with serving(lab, folder) as (port, key):
            url = f"sftp://{outside_host.address(lab, 4)}:{port}/upload"
            mine = apply.replace("sftp://files.example.com:22/bundles", url)
            mine = mine.replace("AAAAC3NzaC1lZDI1NTE5AAAAI...", key)

            def accepted() -> bool:
                try:
                    desk.run(mine)
                except AssertionError:
                    return False
                return True

            wait_for("it is accepted", accepted, seconds=90)
            desk.run(wait)
            told = {kind: status for kind, status, *_ in conditions(lab, "broken-egress")}
            assert told == {
                "Started": "True", "BundleCollected": "True", "CollectionFailure": "False", "Completed": "True",
            }, conditions(lab, "broken-egress")  # fmt: skip
            assert [file.name for file in (folder / "upload").iterdir()] == ["node-1_broken-egress.tar.gz"]
    finally:
        lab.api.kubectl("delete", "supportbundlecollections", "--all", "--wait=false")
        lab.api.kubectl("delete", "namespace", "ops", "--wait=false")
