"""What does copying connections to the next gateway cost at 5,000 new connections per second?

Two gateways in network namespaces, whose host translates connections of a client to a server. Each connection lives 0.2 s and is
then reset. In turns the product's copier (with the gossip that carries it) and Debian's conntrackd (FTFW, by UDP) run in both
gateways, and nothing. Figures are shares of a processor for each 5,000 connections per second, and Mbit/s on the cable between the
gateways. Needs root; conntrackd is left out where it is not installed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import copying_gateway
from figure import Against, show

if TYPE_CHECKING:
    from collections.abc import Iterator

RATE, SECONDS, ROUNDS = 5000, 10, 5
TARGETS = {"processor": 10.0, "network": 2.0}
"""Percent of a processor of the gateway that has the address; Mbit/s to each of the others."""
IP, PORT, KEY = "203.0.113.50", 10351, os.urandom(32).hex()
TICKS = os.sysconf("SC_CLK_TCK")
SERVER = """
import selectors, socket
poll, address = selectors.DefaultSelector(), ("198.51.100.100", 0)
servers = [socket.create_server(("198.51.100.100", 9000 + n), backlog=1000) for n in range(8)]
for server in servers:
    server.setblocking(False)
    poll.register(server, selectors.EVENT_READ)
held = []
print("listening", flush=True)
while True:
    for key, _ in poll.select():
        with __import__("contextlib").suppress(BlockingIOError):
            while True:
                held.append(key.fileobj.accept()[0])
    for one in held[:-3000]:
        one.close()
    del held[:-3000]
"""
CLIENT = """
import socket, struct, sys, time
from collections import deque
rate, seconds = int(sys.argv[1]), float(sys.argv[2])
linger, held = struct.pack("ii", 1, 0), deque()
began, done = time.monotonic(), 0
while (now := time.monotonic()) - began < seconds:
    while done < (now - began) * rate:
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        one.connect(("198.51.100.100", 9000 + done % 8))
        held.append(one)
        done += 1
        if len(held) > rate // 5:
            held.popleft().close()
        if done % 100 == 0 and time.monotonic() - began > seconds:
            break
    time.sleep(0.001)
print(done / (time.monotonic() - began))
"""
CONFIG = """
Sync {{
    Mode FTFW {{
        DisableExternalCache On
    }}
    UDP {{
        IPv4_address 192.0.2.{me}
        IPv4_Destination_Address 192.0.2.{other}
        Port 3780
        Interface ctl
        SndSocketBuffer 4194304
        RcvSocketBuffer 4194304
        Checksum on
    }}
}}
General {{
    HashSize 32768
    HashLimit 262144
    LockFile {place}/lock{me}
    UNIX {{
        Path {place}/socket{me}
    }}
    NetlinkBufferSize 4194304
    NetlinkBufferSizeMaxGrowth 16777216
    NetlinkEventsReliable Off
    Filter From Kernelspace {{
        Protocol Accept {{
            TCP
        }}
        Address Ignore {{
            IPv4_address 127.0.0.1
        }}
    }}
}}
"""


class Network:
    """Client, two gateways, server, and a cable between the gateways."""

    def __init__(self) -> None:
        self._prefix = f"antrea-b-{uuid.uuid4().hex[:8]}"
        self.names = {name: f"{self._prefix}-{name}" for name in ("client", "n1", "n2", "server")}

    def sh(self, name: str, command: str) -> str:
        words = ["ip", "netns", "exec", self.names[name], "sh", "-c", command]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def popen(self, name: str, *words: str) -> subprocess.Popen[str]:
        env = {**os.environ, "PYTHONPATH": f"{Path.cwd()}:{Path(copying_gateway.__file__).parent}"}
        return subprocess.Popen(
            ["ip", "netns", "exec", self.names[name], *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=env,
        )

    def _cable(self, one: str, dev: str, other: str, far: str) -> None:
        self.sh(
            one,
            f"ip link add {dev} type veth peer name {far} netns {self.names[other]}; ip link set {dev} up",
        )
        self.sh(other, f"ip link set {far} up")

    @contextlib.contextmanager
    def standing(self) -> Iterator[None]:
        for name in self.names.values():
            subprocess.run(["ip", "netns", "add", name], check=True)
        try:
            for name in self.names:
                self.sh(name, "ip link set lo up")
            self._cable("client", "eth0", "n1", "inn")
            self._cable("server", "eth0", "n1", "out")
            self._cable("n1", "ctl", "n2", "ctl")
            self.sh(
                "n2",
                "ip link add inn type veth peer name inn0; ip link add out type veth peer name out0; ip link set inn up; ip link set out up",
            )
            for number, name in ((11, "n1"), (12, "n2")):
                self.sh(name, f"ip addr add 192.0.2.{number}/24 dev ctl")
            self.sh("client", "ip addr add 10.1.0.2/24 dev eth0; ip route add default via 10.1.0.254")
            self.sh("client", "sysctl -qw net.ipv4.ip_local_port_range='1024 65535'")
            self.sh("server", "ip addr add 198.51.100.100/24 dev eth0; ip route add default via 198.51.100.1")
            self.sh("n1", "ip addr add 10.1.0.254/24 dev inn; ip addr add 198.51.100.1/24 dev out")
            self.sh("n1", "sysctl -qw net.ipv4.ip_forward=1")
            rule = f"oifname out ip saddr 10.1.0.0/24 snat to {IP}"
            self.sh(
                "n1",
                f"nft 'add table ip t; add chain ip t p {{ type nat hook postrouting priority srcnat; }}; add rule ip t p {rule}'",
            )
            yield
        finally:
            for name in self.names.values():
                subprocess.run(["ip", "netns", "del", name], check=True)


def processor(pid: int) -> float:
    """Seconds that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def sent(network: Network) -> int:
    """Bytes that the first gateway has sent to the other."""
    rows = json.loads(network.sh("n1", "ip -j -s link show ctl"))
    return int(rows[0]["stats64"]["tx"]["bytes"])


def entries(network: Network, name: str) -> int:
    return network.sh(name, f"conntrack -L -p tcp --reply-dst {IP} 2>/dev/null || true").count("ESTABLISHED")


@contextlib.contextmanager
def product(network: Network) -> Iterator[list[int]]:
    """Its process in each gateway."""
    runs = [
        network.popen(name, sys.executable, copying_gateway.__file__, name, str(PORT), KEY, IP)
        for name in ("n1", "n2")
    ]
    try:
        assert runs[0].stdout
        for line in runs[0].stdout:
            if line.startswith("{") and json.loads(line)["whole"] == ["n2"]:
                break
        yield [run.pid for run in runs]
    finally:
        for run in runs:
            run.kill()
            run.wait()


@contextlib.contextmanager
def conntrackd(network: Network) -> Iterator[list[int]]:
    """Debian's, in each gateway."""
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        pids = []
        for name, me, other in (("n1", 11, 12), ("n2", 12, 11)):
            file = Path(place, name)
            file.write_text(CONFIG.format(me=me, other=other, place=place))
            run = network.popen(name, "conntrackd", "-C", str(file))
            stack.callback(run.wait)
            stack.callback(run.kill)
            pids.append(run.pid)
        time.sleep(2)
        yield pids


def measure(network: Network, kind: str) -> dict[str, float]:
    """One round."""
    for name in ("n1", "n2"):
        network.sh(name, "conntrack -F 2>/dev/null; true")
    with {"product": product, "conntrackd": conntrackd}[kind](network) as pids:
        before, bytes_before = [processor(pid) for pid in pids], sent(network)
        client = network.popen("client", sys.executable, "-c", CLIENT, str(RATE), str(SECONDS))
        time.sleep(SECONDS / 2)
        copied, held = entries(network, "n2"), entries(network, "n1")
        out, _ = client.communicate()
        rate = float(out)
        time.sleep(1)
        used = [processor(pid) - start for pid, start in zip(pids, before, strict=True)]
        share = [100 * seconds / SECONDS * RATE / rate for seconds in used]
        network_rate = (sent(network) - bytes_before) * 8 / 1e6 / SECONDS * RATE / rate
        print(
            f"{kind}: {rate:.0f}/s, {share} %, {network_rate:.2f} Mbit/s, {copied} of {held}", file=sys.stderr
        )
        return {"holder": share[0], "heir": share[1], "network": network_rate, "rate": rate}


def main() -> None:
    network = Network()
    kinds = ["product", *(["conntrackd"] if shutil.which("conntrackd") else [])]
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    with network.standing():
        server = network.popen("server", sys.executable, "-c", SERVER)
        try:
            assert server.stdout
            assert server.stdout.readline() == "listening\n"
            for _ in range(ROUNDS):
                for kind in kinds:
                    found[kind].append(measure(network, kind))
        finally:
            server.kill()
            server.wait()
    for name, unit, target in (
        ("holder", "% of a processor", TARGETS["processor"]),
        ("heir", "% of a processor", TARGETS["processor"]),
        ("network", "Mbit/s", TARGETS["network"]),
        ("rate", "connections/s", None),
    ):
        values = {kind: [row[name] for row in rows] for kind, rows in found.items()}
        other = values.get("conntrackd")
        against = Against("conntrackd", tuple(other)) if other else None
        show(f"egress_sync_{name}", unit, values["product"], against=against, target=target)


if __name__ == "__main__":
    main()
