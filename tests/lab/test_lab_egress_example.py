"""The walk through Egress IPs of VLANs that examples/egress-vlan offers, as a person takes it, and what it says on its way."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from admission_object import create

from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

ROOT = Path(__file__).parents[2]
KINDS = "egresses.crd.antrea.io,externalippools.crd.antrea.io,pods"
WARNING = "Warning: status: dropped, it does not choose a Node"
DEVICE = r"""antrea-ext\.181: <BROADCAST,MULTICAST,(PROMISC,)?UP,LOWER_UP> mtu 1500 .*
    link/ether .*
    inet 172\.18\.181\.40/24 brd 172\.18\.181\.255 scope global antrea-ext\.181"""
NODE = r"172\.30\.0\.11"
SEEN = rf"client is seen as 172\.18\.181\.40, other as {NODE}; before, client was seen as {NODE}"
BOTH = rf"client is seen as 172\.18\.181\.40, second as 172\.18\.216\.65, other as {NODE}"

WRITTEN = ("pool.yaml", "egress.yaml", "second.yaml")


@pytest.fixture
def lab(three_nodes: Lab) -> Iterator[Lab]:
    wait_for("our webhooks", lambda: reached(three_nodes), seconds=60, step=0.2)
    yield three_nodes
    three_nodes.api.kubectl("delete", KINDS, "--all")
    three_nodes.api.kubectl("label", "nodes", "--all", "egress-role-")


def reached(lab: Lab) -> bool:
    """Whether our webhooks hear of all that the walk writes.

    If the controller's Node has just lost its power, as one did in the test before, the API server learns only by a call
    that a connection which it kept is gone; it has some for each webhook.
    """
    texts = [(ROOT / "examples/egress-vlan" / name).read_text() for name in WRITTEN]
    return "failed calling webhook" not in create(lab, "\n---\n".join(texts), "--dry-run=server")


@pytest.mark.wide
def test_the_walk_through_egress_vlan_goes_as_it_says(lab: Lab) -> None:
    done = subprocess.run(
        [ROOT / "examples/egress-vlan/walk.sh", "--yes", "--name", lab.record.name],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    assert WARNING in done.stderr
    held = re.findall(r"^egress-vlan +172\.18\.181\.40 +\S+ +(node-[23])$", said, re.MULTILINE)
    assert [held[0], {"node-2", "node-3"}, held[0]] == [held[2], set(held[:2]), held[2]], said
    assert re.findall(r"^egress-vlan-external-ip-pool +(\d+) +(\d+)", said, re.MULTILINE) == [
        ("11", "0"),
        ("11", "1"),
    ]
    for sentence in (SEEN, DEVICE, BOTH):
        assert re.search(sentence, said), said
