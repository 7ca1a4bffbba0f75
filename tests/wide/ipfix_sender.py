"""Starts go-ipfix's collector in this network namespace, sends it records, and prints what it has understood, as JSON.

Arguments: the collector, tcp, udp or tls, a folder with the certificates of tls, the number of records, and whose they are: an
agent's, or proxied.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from antrea.apis.flow import FlowRecord
from antrea.ipfix.message import MessageWriter, domain_of
from antrea.outside.ipfix.exporter import CollectorSession
from antrea.outside.tls.client_context import client_context

if TYPE_CHECKING:
    import ssl

TIMEOUT = 60.0
MAX_BATCH = 50
"""Records before the collector is asked whether it has them."""


def records(count: int) -> list[FlowRecord]:
    """Of both families, each another one."""
    return [
        FlowRecord(
            flow_start_seconds=1_700_000_000 + at, flow_end_seconds=1_700_000_100 + at, flow_end_reason=2,
            source_ip=f"fd00::{at + 1:x}" if at % 2 else f"10.0.{at >> 8}.{at & 255}",
            destination_ip="fd00:1::9" if at % 2 else "10.9.0.9",
            source_transport_port=1024 + at, destination_transport_port=80, protocol_identifier=6,
            packet_total_count=(1 << 40) + at, reverse_octet_delta_count=at,
            packet_delta_count=at + 1, octet_delta_count=100 * (at + 1),
            source_pod_name=f"client-{at}", source_pod_namespace="shop", source_node_name="node-1",
            destination_service_port=80, destination_service_port_name="shop/" + "s" * 300,
            destination_cluster_ip="fd00:96::9" if at % 2 else "10.96.0.9",
            ingress_network_policy_rule_action=1, egress_network_policy_name="names with \"quotes\" and é",
            tcp_state="ESTABLISHED", flow_type=2, egress_ip="203.0.113.9",
            cluster_id="c1", original_observation_domain_id=0xFFFFFF00 + at % 9, flow_direction=255,
            original_exporter_ipv4="" if at % 3 else "192.0.2.7",
            original_exporter_ipv6="2001:db8::7" if at % 3 else "",
        )
        for at in range(count)
    ]  # fmt: skip


def collected() -> list[dict[str, object]]:
    with urllib.request.urlopen("http://127.0.0.1:8080/records", timeout=5) as answer:
        found: list[dict[str, object]] = json.load(answer)["flowRecords"] or []
        return found


async def send(protocol: str, folder: Path, count: int, whose: str) -> None:
    tls: ssl.SSLContext | None = None
    if protocol == "tls":
        tls = client_context(cafile=str(folder / "ca.crt"))
        tls.load_cert_chain(folder / "client.crt", folder / "client.key")
    session = CollectorSession(MessageWriter(domain_of("node-1"), proxied=whose == "proxied"))
    await session.open("127.0.0.1", 4739, protocol, tls, "collector" if tls else "")
    for first in range(0, count, MAX_BATCH):
        end = min(first + MAX_BATCH, count)
        assert await session.export(records(count)[first:end]) == end - first
        has_read(end)
    await session.close()


def has_read(count: int) -> None:
    """Datagrams that wait for a collector without processor are lost once they fill its socket."""
    deadline = time.monotonic() + TIMEOUT
    while len(collected()) < count and time.monotonic() < deadline:
        time.sleep(0.02)


def main(program: str, protocol: str, folder: Path, count: int, whose: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    words = [program, "--ipfix.transport", "udp" if protocol == "udp" else "tcp"]
    if protocol == "tls":
        words += ["--server-cert", f"{folder}/server.crt", "--server-key", f"{folder}/server.key"]
        words += ["--client-ca", f"{folder}/ca.crt"]
    with subprocess.Popen(words, stderr=(folder / "collector.log").open("w")) as collector:
        try:
            deadline = time.monotonic() + TIMEOUT
            while time.monotonic() < deadline:
                try:
                    collected()
                    break
                except urllib.error.URLError:
                    time.sleep(0.1)
            asyncio.run(send(protocol, folder, count, whose))
            print(json.dumps(collected()))
        finally:
            collector.terminate()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
