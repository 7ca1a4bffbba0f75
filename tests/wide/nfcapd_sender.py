"""Starts nfcapd in this network namespace, sends it records over UDP, and prints what nfdump reads of its files, as JSON, and its log.

Arguments: the root directory of nfdump, a folder below /tmp for its files, the number of records.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from ipfix_sender import records

from antrea.ipfix.message import MessageWriter, domain_of
from antrea.outside.ipfix.exporter import CollectorSession

PORT, TIMEOUT = 4739, 60.0
SLICE, PAUSE = 100, 0.05
"""Records that are sent before the collector has its turn: a socket has room for so many."""


def is_bound() -> bool:
    """Whether somebody receives at the port."""
    lines = Path("/proc/net/udp").read_text().splitlines()
    return any(f":{PORT:04X} " in line for line in lines)


async def send(count: int) -> None:
    session = CollectorSession(MessageWriter(domain_of("node-1")))
    await session.open("127.0.0.1", PORT, "udp")
    every = records(count)
    for first in range(0, count, SLICE):
        await session.export(every[first : first + SLICE])
        await asyncio.sleep(PAUSE)
    await session.close()


def main(root: str, folder: Path, count: int) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    into = Path(f"{root}{folder}")
    subprocess.run(["mount", "-t", "tmpfs", "tmp", f"{root}/tmp"], check=True)
    into.mkdir(parents=True)
    words = ["chroot", root, "nfcapd", "-w", str(folder), "-p", str(PORT), "-b", "127.0.0.1", "-t", "3600"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as collector:
        deadline = time.monotonic() + TIMEOUT
        while not is_bound():
            assert collector.poll() is None, "nfcapd has ended"
            assert time.monotonic() < deadline
            time.sleep(0.05)
        asyncio.run(send(count))
        time.sleep(1)  # what is in its socket is read before the signal
        collector.send_signal(signal.SIGTERM)
        log, _ = collector.communicate(timeout=TIMEOUT)
    read = ["chroot", root, "nfdump", "-R", str(folder), "-o", "json"]
    found = subprocess.run(read, check=True, capture_output=True, text=True)
    print(json.dumps({"log": log, "records": json.loads(found.stdout)}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
