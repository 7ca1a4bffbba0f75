"""How many records a second does a core of the flow aggregator join, compared with upstream's?

`ANTREA_FLOW_AGGREGATOR=/a/flow-aggregator python -m benchmarks.flows_upstream [RATE] [SECONDS] [TIMES]`: that program, upstream's
flow-aggregator v2.3.2, and ours, each in its turn (TIMES, 3): mode Aggregate, TCP, into the flow log and an IPFIX collector that reads and
forgets. Two sessions, as of two Nodes, send RATE (4,000) records a second for SECONDS (40), the halves of 10,000 connections between
these Nodes that go on; a joined record is exported every 10 s. The figure is records per second of processor of the aggregator alone; lines
of the log are what it has exported. Upstream's needs a cluster: a real etcd and kube-apiserver. All of it is in namespaces of its own.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from figure import Against, show

from antrea.apis.flow import FlowRecord
from antrea.ipfix.message import MessageWriter
from antrea.ipfix.template import Contents
from antrea.outside.ipfix.exporter import CollectorSession
from benchmarks.cni_add import ROOT, processes, sh
from benchmarks.kube_api import HOST, NODE_IP, PORT, KubeApi

if TYPE_CHECKING:
    from collections.abc import Callable

    Start = Callable[..., subprocess.Popen[bytes]]

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
"""Source: unshare(2)."""
CONNECTIONS = 10_000
SLICE = 0.1
"""Seconds between two sends."""
RECORDS, COLLECTOR = 4739, 4740
"""Ports: upstream's is fixed."""
MOUNTED = "/var/run/secrets/kubernetes.io/serviceaccount"
REST = 3.0
"""Seconds after the last record."""
TARGET = 0.5
PROGRAM = "ANTREA_FLOW_AGGREGATOR"
"""Names upstream's program, a file that runs on this machine."""
TICKS = os.sysconf("SC_CLK_TCK")


def configuration(folder: Path) -> Path:
    """What both read."""
    config = {
        "mode": "Aggregate", "activeFlowRecordTimeout": "10s", "inactiveFlowRecordTimeout": "90s",
        "aggregatorTransportProtocol": "tcp", "apiServer": {"apiPort": 10348},
        "flowLogger": {"enable": True, "path": str(folder / "flows.log"), "maxSize": 1000, "recordFormat": "CSV"},
        "flowCollector": {"enable": True, "address": f"{HOST}:{COLLECTOR}:tcp", "recordFormat": "IPFIX"},
    }  # fmt: skip
    # of its own: upstream's looks at all that changes in that folder
    path = folder / "configuration/flow-aggregator.conf"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(config))
    return path


def ours(folder: Path) -> list[str]:
    path = configuration(folder)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"grpcCollector": {"enable": False}}))
    words = (sys.executable, "-m", "antrea.flow_aggregator.main", "--token-file", str(folder / "token"))
    return [*words, "--config", str(path)]


def cluster(folder: Path, start: Start) -> None:
    """A cluster as upstream's program finds one in a Pod."""
    api = KubeApi(folder / "kube", start)
    identity = {"metadata": {"name": "antrea-cluster-identity"}, "data": {"uuid": "2a8fc1f0-3c5e-4b52-9d49-d7d1b0a1a1f3"}}  # fmt: skip
    api.request("POST", "/api/v1/namespaces/kube-system/configmaps", identity)
    config = msgspec.yaml.decode(api.add_account("kube-system", "flow-aggregator").read_bytes())
    Path(MOUNTED).mkdir(parents=True, exist_ok=True)
    sh("mount", "-t", "tmpfs", "none", MOUNTED)
    Path(MOUNTED, "token").write_text(config["users"][0]["user"]["token"])
    Path(MOUNTED, "ca.crt").write_bytes((folder / "kube/ca.crt").read_bytes())
    Path(MOUNTED, "namespace").write_text("kube-system")


def halves() -> tuple[list[FlowRecord], list[FlowRecord]]:
    """Of connections of 500 Pods to 50 servers on another Node: that of the source's Node, and that of the destination's."""
    begun, sides = int(time.time()), ([], [])  # type: tuple[int, tuple[list[FlowRecord], list[FlowRecord]]]
    for number in range(CONNECTIONS):
        ends: dict[str, Any] = {
            "flow_start_seconds": begun, "flow_end_seconds": begun, "flow_end_reason": 2, "flow_type": 2, "protocol_identifier": 6,
            "source_ip": f"10.10.{number % 500 // 250}.{number % 250 + 2}", "destination_ip": f"10.11.9.{number % 50 + 2}",
            "source_transport_port": 1024 + number // 500, "destination_transport_port": 8080, "tcp_state": "ESTABLISHED",
        }  # fmt: skip
        sides[0].append(FlowRecord(
            source_pod_name=f"web-{number % 500}", source_pod_namespace="shop", source_node_name="node-1",
            egress_network_policy_name=f"policy-{number % 30}", egress_network_policy_namespace="shop",
            egress_network_policy_type=2, egress_network_policy_rule_action=1, **ends,
        ))  # fmt: skip
        sides[1].append(FlowRecord(
            destination_pod_name=f"db-{number % 50}", destination_pod_namespace="data", destination_node_name="node-2",
            ingress_network_policy_name=f"policy-{number % 30}", ingress_network_policy_namespace="data",
            ingress_network_policy_type=2, ingress_network_policy_rule_action=1, **ends,
        ))  # fmt: skip
    return sides


async def send(rate: int, seconds: float) -> int:
    """So many a second, of both Nodes; one that is late is sent at once. Returns how many."""
    sides, sessions = (
        halves(),
        [CollectorSession(MessageWriter(domain, contents=Contents(requests=True))) for domain in (1, 2)],
    )
    for session in sessions:
        await session.open(HOST, RECORDS, "tcp")
    begun, sent, most = time.monotonic(), 0, int(rate * SLICE / 2)
    while sent < rate * seconds:
        now, at = int(time.time()), sent // 2
        for session, flows in zip(sessions, sides, strict=True):
            some = [flows[(at + number) % CONNECTIONS] for number in range(most)]
            for one in some:
                one.flow_end_seconds = now
                one.octet_total_count += 1500
                one.octet_delta_count, one.packet_delta_count = 1500, 1
                one.packet_total_count += 1
            sent += await session.export(some)
        await asyncio.sleep(max(begun + sent / rate - time.monotonic(), 0))
    await asyncio.sleep(REST)
    for session in sessions:
        await session.close()
    return sent


def sink() -> None:
    """Read what comes over TCP, and forget it."""
    with socket.create_server((HOST, COLLECTOR)) as listening:
        while True:
            accepted, _ = listening.accept()
            while accepted.recv(1 << 20):
                pass


def processor(pid: int) -> float:
    """Seconds so far, of all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident(pid: int) -> float:
    """The most megabytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6


def wait_listening(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((HOST, RECORDS), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline or process.poll() is not None:
                sys.exit(log.read_text()[-3000:])
            time.sleep(0.1)
        else:
            return


class Outcome(msgspec.Struct, frozen=True):
    """Of one run."""

    rate: float
    """Records taken in for each second of processor."""
    lines: int
    """Of the flow log."""
    memory: float


def measured(words: list[str], folder: Path, rate: int, seconds: int) -> Outcome:
    """One run of one program."""
    (folder / "flows.log").unlink(missing_ok=True)
    environment = os.environ | {"KUBERNETES_SERVICE_HOST": HOST, "KUBERNETES_SERVICE_PORT": str(PORT), "POD_NAMESPACE": "kube-system"}  # fmt: skip
    log = folder / "log"
    with log.open("wb") as to:
        process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=to, stderr=to)
    try:
        wait_listening(process, log)
        sending = (sys.executable, "-m", "benchmarks.flows_upstream", "send", str(rate), str(seconds))
        before = processor(process.pid)
        done = subprocess.run(sending, cwd=ROOT, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            sys.exit(log.read_text()[-3000:])
        sent = int(done.stdout)
        used, memory = processor(process.pid) - before, resident(process.pid)
    finally:
        process.terminate()
        process.wait(60)
    # this cluster has no aggregation layer, which concerns requests to the API alone
    found = [line for line in log.read_text().splitlines() if line.startswith("E") and "cafile" not in line]
    for error in found[:3]:
        print(f"{Path(words[0]).name}: {error[:300]}", file=sys.stderr)
    with (folder / "flows.log").open("rb") as lines:
        return Outcome(sent / used, sum(1 for _ in lines), memory)


def main(rate: int, seconds: int, times: int) -> None:
    upstream = os.environ.get(PROGRAM, "")
    if not os.access(upstream, os.X_OK) or Path(upstream).is_dir():
        sys.exit(f"{PROGRAM}: {upstream!r} is no program; name upstream's flow-aggregator v2.3.2")
    upstream = str(Path(upstream).absolute())
    # namespaces of this process and its children alone: ports and mounts are not everybody's
    if ctypes.CDLL(None).unshare(CLONE_NEWNS | CLONE_NEWNET):
        sys.exit("unshare: this needs root")
    sh("mount", "--make-rprivate", "/")
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "address", "add", f"{NODE_IP.format(1)}/24", "dev", "lo")
    found: dict[str, list[Outcome]] = {"ours": [], "upstream": []}
    with tempfile.TemporaryDirectory() as place, processes() as start:
        folder = Path(place)
        cluster(folder, start)
        start(sys.executable, "-m", "benchmarks.flows_upstream", "sink", cwd=ROOT)
        for _ in range(times):
            print(f"load average {os.getloadavg()[0]:.1f}", flush=True)
            found["upstream"].append(
                measured([upstream, "--config", str(configuration(folder))], folder, rate, seconds)
            )
            found["ours"].append(measured(ours(folder), folder, rate, seconds))
    ratios = [one.rate / other.rate for one, other in zip(*found.values(), strict=True)]
    for name, unit, values in (
        (
            "rate",
            "records/s of a core",
            {key: tuple(one.rate for one in all_) for key, all_ in found.items()},
        ),
        ("lines", "lines", {key: tuple(float(one.lines) for one in all_) for key, all_ in found.items()}),
        ("memory", "MB", {key: tuple(one.memory for one in all_) for key, all_ in found.items()}),
    ):
        show(f"flows_upstream_{name}", unit, values["ours"], against=Against("upstream", values["upstream"]))
    show("flows_upstream_times", "times upstream's", ratios)
    print(f"target >= {TARGET}: {'met' if statistics.median(ratios) >= TARGET else 'missed'}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["send", rate, seconds]:
            print(asyncio.run(send(int(rate), float(seconds))))
        case ["sink"]:
            sink()
        case numbers:
            main(*([int(word) for word in numbers] + [4000, 40, 3][len(numbers) :]))
