"""Flags over a file over defaults; a file that cannot be understood is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from antrea.errors import Invalid
from antrea.lab.settings import Settings, read
from antrea.lab.topology import Machine, Nic, StaticRoute

if TYPE_CHECKING:
    from pathlib import Path

FILE = """
nodes: 2
family: dual
vlans: [100]
hosts:
- name: peer
  nics: [{name: eth0, switch: fabric, vlan: 100, addresses: [172.16.100.9/24]}]
  routes: [{dst: default, via: 172.16.100.1}]
loss: {node-1/eth1: 5}
agent: {tunnelType: vxlan}
"""


def test_flags_win_over_the_file_and_the_file_over_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(FILE)

    assert read(file, {"nodes": 4, "kubeProxy": None, "cni": "reference"}) == Settings(
        nodes=4,
        family="dual",
        cni="reference",
        vlans=(100,),
        hosts=(
            Machine(
                name="peer",
                nics=(Nic(name="eth0", switch="fabric", vlan=100, addresses=("172.16.100.9/24",)),),
                routes=(StaticRoute("default", "172.16.100.1"),),
            ),
        ),
        loss={"node-1/eth1": 5},
        agent={"tunnelType": "vxlan"},
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nodes: two", "Expected `int`, got `str` - at `$.nodes`"),
        ("family: ipv5", "Invalid enum value 'ipv5' - at `$.family`"),
        ("nodez: 2", "Object contains unknown field `nodez`"),
        ("- 1", "Expected `object`, got `array`"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(text)

    with pytest.raises(Invalid) as error:
        read(file, {})

    assert (error.value.path, error.value.why) == (str(file), why)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"lab\.yaml: No such file or directory"):
        read(tmp_path / "lab.yaml", {})
