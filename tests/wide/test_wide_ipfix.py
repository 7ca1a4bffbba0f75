"""go-ipfix's collector, on which upstream's aggregator is built, reads every value of our records, over each transport."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from certificates import CLIENT, SERVER, made
from fuzzing import spoilt
from ipfix_sender import records

from antrea.errors import Invalid
from antrea.ipfix.decode import Decoder
from antrea.ipfix.element import BY_NAME
from antrea.ipfix.message import MessageWriter, domain_of
from antrea.ipfix.template import agent_elements, aggregated_elements, proxied_elements
from lab import artifacts

if TYPE_CHECKING:
    from fuzzing import Fuzz

    from antrea.apis.flow import FlowRecord

HERE = Path(__file__).parent
COUNT = 200
pytestmark = [pytest.mark.wide, pytest.mark.timeout(1200)]


def certificates(folder: Path) -> None:
    authority = made("authority", ca=True)
    (folder / "ca.crt").write_text(authority.pem)
    for name, usage in (("server", SERVER), ("client", CLIENT)):
        pair = made("collector", authority, usage=usage, names=("collector",))
        (folder / f"{name}.crt").write_text(pair.pem)
        (folder / f"{name}.key").write_text(pair.key_pem)


def understood(record: FlowRecord, whose: str) -> dict[str, str]:
    """What the collector prints of a record."""
    found = {}
    elements = proxied_elements if whose == "proxied" else agent_elements
    for one in elements(ipv6=record.is_ipv6):
        value = getattr(record, one.field)
        nothing = {"ipv4": "0.0.0.0", "ipv6": "::"}.get(one.kind, "")
        found[one.name] = str(ip_address(value)) if value and nothing else str(value) or nothing
    return found


@pytest.mark.parametrize(
    ("protocol", "whose"), [("tcp", "agent"), ("udp", "agent"), ("tls", "agent"), ("tcp", "proxied")]
)
def test_wide_ipfix_the_collector_of_go_ipfix_reads_every_value(
    protocol: str, whose: str, tmp_path: Path
) -> None:
    program = artifacts.ipfix_collector(print)
    certificates(tmp_path)
    words = [
        sys.executable,
        str(HERE / "ipfix_sender.py"),
        str(program),
        protocol,
        str(tmp_path),
        str(COUNT),
        whose,
    ]
    path = os.pathsep.join((str(HERE.parents[1]), str(HERE)))
    said = subprocess.run(
        ["unshare", "--net", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert said.returncode == 0, said.stderr + (tmp_path / "collector.log").read_text()
    found = json.loads(said.stdout)
    assert {one["obsDomainID"] for one in found} == {domain_of("node-1")}
    read = [dict(re.findall(r"^ +(\w+): (.*) $", one["data"], re.MULTILINE)) for one in found]
    wanted = [understood(one, whose) for one in records(COUNT)]
    order = [one["sourceTransportPort"] for one in wanted]
    read.sort(key=lambda one: order.index(one["sourceTransportPort"]))
    assert read == wanted


def test_wide_ipfix_fuzz_what_is_spoilt_ends_its_message_alone(fuzz: Fuzz) -> None:
    writer = MessageWriter(7, aggregated=True)
    templates = writer.templates(0)
    data = [message for message, _ in writer.data(records(20), 0, 4000)]
    names = {one.field for one in (*aggregated_elements(ipv6=False), *BY_NAME.values())}
    read = refused = 0
    for rnd in fuzz:
        decoder = Decoder()
        for message in [*templates, *data, *templates, *data]:
            octets = bytearray(spoilt(rnd, message) if rnd.random() < 0.3 else message)
            if rnd.random() < 0.7:
                octets[2:4] = (len(octets) & 0xFFFF).to_bytes(2)
            try:
                _, found = decoder.read(bytes(octets))
                read += len(found)
            except Invalid:
                refused += 1
            else:
                assert all(isinstance(getattr(one, name), int | str) for one in found[:3] for name in names)
    print(f"{read} records read, {refused} messages refused")
    assert min(read, refused) > 0
