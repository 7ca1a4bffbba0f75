"""`antrea-lab visibility`: one command, and a browser on this machine shows who talks to whom."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
import workstation
from agent_node import pod_namespace
from config_map import ConfigMap, wait_value
from free_port import free_port

from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPResponse

    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(600)]
VISIT = Path(__file__).with_name("page_visit.py")
LAB = Path(sys.executable).with_name("antrea-lab")
SECONDS = 400
PATHS = (
    "", "/map?by=workload", "/top", "/top?by=egress", "/policies", "/nodes", "/recommend?namespace=default",
    "/explain?from=default/visitor&to=default/server&port=8080/tcp",
)  # fmt: skip
LIVE_SECONDS = 2.0
"""With the timeouts that the chart sets; test_lab_flow_denied.py has several connections."""
MADE = ("pod/visitor", "pod/client", "pod/server", "service/server", "networkpolicy/server")


@pytest.fixture
def before(lab: Lab) -> Iterator[None]:
    config = ConfigMap(lab)
    yield
    config.write(config.text)
    wait_value(lab, "featureGates", {})
    lab.api.kubectl("delete", "clusterrolebinding", "lab-viewer-sees-all", "--ignore-not-found")
    lab.api.kubectl("delete", "--ignore-not-found", *MADE)
    lab.api.kubectl(
        "delete", "namespace", "flow-aggregator", "--ignore-not-found", "--timeout=120s", seconds=130
    )


@contextlib.contextmanager
def visibility(lab: Lab, port: int, out: IO[str]) -> Iterator[subprocess.Popen[str]]:
    # a shell that starts this in the background has SIGINT ignored
    words = [
        "env",
        "--default-signal=INT",
        str(LAB),
        "visibility",
        "--name",
        lab.record.name,
        f"--port={port}",
    ]
    with subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def stored(lab: Lab) -> bool:
    words = workstation.command(lab, "get", "flows", "--pod", "default/visitor")
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=60, env=workstation.environment()
    )
    return "default/server" in done.stdout


@pytest.mark.usefixtures("before")
def test_a_browser_of_this_machine_shows_the_connections_of_a_lab(lab: Lab, tmp_path: Path) -> None:
    port, said = free_port(), tmp_path / "said"
    with said.open("w") as out, visibility(lab, port, out) as running:
        wait_for(
            "the page", lambda: running.poll() is not None or "Ctrl-C" in said.read_text(), seconds=SECONDS
        )
        text = said.read_text()
        url, token = (
            re.search(r"(https://127\.0\.0\.1:\d+)/ui", text),
            re.search(r"^eyJ\S+$", text, re.MULTILINE),
        )
        assert url, text
        assert token, text
        wait_for("a connection in the store", lambda: stored(lab), seconds=120)
        assert answers(url[1], token[0]) == dict.fromkeys(PATHS, 200)
        took = denied_connection(lab, url[1], token[0])
        print(
            f"a denied connection is shown after {took['live']:.1f} s, and stored after {took['stored']:.1f} s"
        )
        words = [sys.executable, str(VISIT), str(tmp_path), url[1], token[0], "default", "default/visitor"]
        paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
        shown = json.loads(subprocess.check_output(words, text=True, timeout=180, env=os.environ | paths))
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 0, said.read_text()
    assert "default/server" in shown["map"]
    # in the table it is once the other Node's half has come, too
    assert took["live"] < LIVE_SECONDS, took


def answers(url: str, token: str) -> dict[str, int]:
    """The status of what each view of the page asks, and of Explain."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    found = {}
    for path in PATHS:
        headers = {"Authorization": f"Bearer {token}"}
        asked = urllib.request.Request(f"{url}/flows{path}", headers=headers)
        try:
            with urllib.request.urlopen(asked, context=context, timeout=60) as answer:
                found[path] = answer.status
        except urllib.error.HTTPError as error:
            found[path] = error.code
            print(path, error.read().decode())
    return found


def denied_connection(lab: Lab, url: str, token: str) -> dict[str, float]:
    """Seconds from the packet that a policy drops until the page has it, as it comes and in its table."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def asked(path: str) -> HTTPResponse:
        query = f"{url}/{path}?action=denied&pod=default/server&port=8081"
        request = urllib.request.Request(query, headers={"Authorization": f"Bearer {token}"})
        answer: HTTPResponse = urllib.request.urlopen(request, context=context, timeout=60)
        return answer

    def stored() -> bool:
        with asked("flows") as answer:
            return bool(json.load(answer)["rows"])

    visitor, server = (
        lab.api.kubectl("get", "pod", name, "-o", "jsonpath={.status.podIP}") for name in ("visitor", "server")
    )  # fmt: skip
    inside = pod_namespace(lab, lab.topology.nodes[0].name, visitor)
    assert not stored()
    with asked("flows/live") as events:
        rows = (json.loads(line[6:])["rows"] for line in events if line.startswith(b"data: "))
        assert next(rows) == []
        began = time.monotonic()
        subprocess.run([*inside, "curl", "-s", "-m", "1", f"http://{server}:8081/"], check=False)
        assert any(rows)
        took = {"live": time.monotonic() - began}
    wait_for("the denied connection in the table", stored, seconds=60)
    return took | {"stored": time.monotonic() - began}


def test_a_port_that_is_taken_is_named_with_the_repair(lab: Lab, tmp_path: Path) -> None:
    """Before anything is changed in the cluster."""
    said = tmp_path / "said"
    with socket.socket() as taken, said.open("w") as out:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with visibility(lab, taken.getsockname()[1], out) as running:
            assert running.wait(60) == 1
    assert "choose another one by --port" in said.read_text()
    assert "flow-aggregator" not in lab.api.kubectl("get", "namespaces")
