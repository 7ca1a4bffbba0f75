"""The examples of the pages on PacketCapture and TrafficControl do what the pages say, as they are printed there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import outside_host
import pytest
import sftp_server
import yaml
from agent_node import pod_namespace
from docs_example import block, commands
from quiet_pod import standing
from test_lab_docs_connections import desk as workstation_desk
from test_lab_docs_connections import gate, pod
from test_lab_support_bundle_collection import serving

from antrea.errors import Unavailable
from lab import node
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from docs_example import Workstation

    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(600)]
desk = workstation_desk
CAPTURES, PAGE = "/apis/crd.antrea.io/v1alpha1/packetcaptures", "packet-capture.md"
SECRET = "antrea-packetcapture-fileserver-auth"
ASK = "kubectl get packetcapture shop-syn"


@pytest.fixture
def capturing(lab: Lab) -> Iterator[Lab]:
    with gate(lab, "PacketCapture"):
        try:
            yield lab
        finally:
            lab.api.kubectl("delete", "packetcaptures", "--all", "--wait=false")
            lab.api.kubectl("delete", "pod", "shop", "browser", "--ignore-not-found", "--wait=false")
            lab.api.kubectl("-n", "kube-system", "delete", "secret", SECRET, "--ignore-not-found")


def fetched(lab: Lab, ip: str, times: int) -> None:
    """As Pod browser asks Pod shop."""
    script = f"for i in $(seq {times}); do curl -s -m 3 -o /dev/null http://{ip}/; done"
    lab.api.kubectl("exec", "browser", "--", "sh", "-c", script)


def uploading(lab: Lab, desk: Workstation, manifest: str, ip: str, folder: Path) -> None:
    """Capture once more, with the page's `fileServer`."""
    secret = commands(block(PAGE, f"create secret generic {SECRET}"))
    given = secret.replace("username=captures", f"username={sftp_server.USER}")
    desk.run(given.replace("password=...", f"password={sftp_server.PASSWORD}"))
    with serving(lab, folder) as (port, key):
        url = f"sftp://{outside_host.address(lab, 4)}:{port}/upload"
        text = block(PAGE, "fileServer:").replace("sftp://files.example.com:22/captures", url)
        found: dict[str, Any] = yaml.safe_load(manifest)
        found["metadata"]["name"] = "sent"
        found["spec"] |= yaml.safe_load(text.replace("AAAAC3NzaC1lZDI1NTE5AAAAI...", key))["spec"]
        lab.api.apply(json.dumps(found))
        lab.api.kubectl("wait", "--for=condition=PacketCaptureStarted", "packetcapture/sent", "--timeout=60s")
        fetched(lab, ip, found["spec"]["captureConfig"]["firstN"]["number"])
        done = ("wait", "--for=condition=PacketCaptureFileUploaded", "packetcapture/sent", "--timeout=60s")
        lab.api.kubectl(*done)
        assert [file.name for file in (folder / "upload").iterdir()] == ["sent.pcapng"]
        assert lab.api.get(f"{CAPTURES}/sent")["status"]["filePath"] == f"{url}/sent.pcapng"


def test_packets_are_captured_printed_and_uploaded(capturing: Lab, desk: Workstation, tmp_path: Path) -> None:
    lab, text = capturing, block(PAGE, "kind: PacketCapture")
    script = commands(text)
    desk.run(script.partition(f"\n{ASK}\n")[0])

    header = next(line for line in text.splitlines() if line.startswith("NAME "))
    shown = [line.split() for line in desk.run(ASK).splitlines()]
    assert shown[0] == header.split()
    assert (shown[1][0], shown[1][2:]) == ("shop-syn", ["5", "True", "True"])
    place = desk.run(next(line for line in script.splitlines() if line.startswith(f"{ASK} -o")))
    agent, _, file = place.partition(":")
    read = script.splitlines()[-1].replace("antrea-agent-7xk2p", agent)
    assert file in read
    packets = desk.run(read).splitlines()
    assert len(packets) == 5
    assert all("Flags [S]," in line for line in packets)

    ip = lab.api.get("/api/v1/namespaces/default/pods/shop")["status"]["podIP"]
    trace = commands(block(PAGE, "$ antctl packetcapture"))
    with ThreadPoolExecutor(1) as pool:
        antctl = pool.submit(desk.run, f"cd {shlex.quote(str(tmp_path))}\n{trace}")

        def ended() -> bool:
            fetched(lab, ip, 10)
            return antctl.done()

        wait_for("antctl has its packets", ended, seconds=120)
        printed = antctl.result()
    (name,) = re.findall(r"^Captured packets file: (browser-shop-\w{8}\.pcapng)$", printed, re.MULTILINE)
    told = subprocess.run(["tcpdump", "-nn", "-r", str(tmp_path / name)], capture_output=True, text=True, check=True)  # fmt: skip
    assert len(told.stdout.splitlines()) == 10

    folder = tmp_path / "server"
    folder.mkdir()
    uploading(lab, desk, text.partition("<<EOF\n")[2].partition("\nEOF\n")[0], ip, folder)


def test_copies_of_a_pod_come_out_of_the_internal_port(lab: Lab) -> None:
    page = "traffic-control.md"
    text = block(page, "name: mirror-web")
    port = yaml.safe_load(text)["spec"]["targetPort"]["ovsInternal"]["name"]
    pods = pod("mirrored", "node-1", "web") + pod("asking", "node-2", "asking")
    with gate(lab, "TrafficControl"), standing(lab, pods, ["mirrored", "asking"]) as ips:
        inside = pod_namespace(lab, "node-2", ips["asking"])
        lab.api.apply(text)
        try:
            wait_for("the port", lambda: has_port(lab, port), seconds=60)
            words = ("timeout", "60", "tcpdump", "-nni", port, "-c", "4", "tcp", "port", "8080")
            with ThreadPoolExecutor(1) as pool:
                copies = pool.submit(node.execute, lab.record, "node-1", *words, seconds=70)

                def ended() -> bool:
                    url = f"http://{ips['mirrored']}:8080/hostname"
                    subprocess.run([*inside, "curl", "-sS", "--max-time", "3", url], capture_output=True, check=False)  # fmt: skip
                    return copies.done()

                wait_for("copies", ended, seconds=80)
                seen = copies.result()
        finally:
            lab.api.kubectl("delete", "trafficcontrol", "mirror-web")
        wait_for("the port is gone", lambda: not has_port(lab, port), seconds=60)
    both = {f"{ips['asking']}.", f"{ips['mirrored']}.8080 >"}
    assert {start for start in both if f"IP {start}" in seen} == both, seen


def has_port(lab: Lab, name: str) -> bool:
    """Whether the first Node has a device of this name, up."""
    try:
        return "UP" in node.execute(lab.record, "node-1", "ip", "-br", "link", "show", "dev", name)
    except Unavailable:
        return False
