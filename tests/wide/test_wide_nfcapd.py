"""nfcapd of Debian, a collector that knows nothing of Antrea's elements, takes every record over UDP, in both families."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest
from ipfix_sender import records

from build import debian_root

HERE = Path(__file__).parent
COUNT = 2000
pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]


def test_wide_nfcapd_takes_every_record_with_its_ends_and_counters() -> None:
    root = debian_root.root(print, "nfdump")
    words = [sys.executable, str(HERE / "nfcapd_sender.py"), str(root), "/tmp/nfcapd", str(COUNT)]
    path = os.pathsep.join((str(HERE.parents[1]), str(HERE)))
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--propagation", "private", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    got = sorted(
        (str(ip_address(one.get("src4_addr") or one["src6_addr"])), one["src_port"],
         str(ip_address(one.get("dst4_addr") or one["dst6_addr"])), one["dst_port"], one["proto"], one["in_packets"], one["in_bytes"])
        for one in found["records"]
    )  # fmt: skip
    wanted = sorted(
        (one.source_ip, one.source_transport_port, one.destination_ip, one.destination_transport_port,
         one.protocol_identifier, one.packet_delta_count, one.octet_delta_count)
        for one in records(COUNT)
    )  # fmt: skip
    assert got == wanted
    assert re.search(r"Sequence Errors: 0\b", found["log"]), found["log"]
    assert re.search(r"Bad Packets: 0\b", found["log"])
