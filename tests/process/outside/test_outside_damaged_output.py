"""Programs of the Node that print what cannot be decoded: the reader raises Invalid, which its callers name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from antrea.antctl.doctor.gather import ovs_interfaces
from antrea.antctl.kube_proxy import ipvs
from antrea.errors import Invalid
from antrea.outside.netlink import held_address
from antrea.outside.netlink.reach import device_to

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

READERS: tuple[Callable[[], object], ...] = (
    lambda: device_to("192.0.2.1"),
    held_address._device_exists,
    ipvs._addresses,
    lambda: ovs_interfaces("br-int"),
)


@pytest.mark.parametrize("read", READERS, ids=["route", "link", "address", "interface"])
@pytest.mark.parametrize(
    "printed",
    ['[{"ifname":', "[" * 5000, '{"data": 1}', "[1]", '[{"ifname": "kube-ipvs0", "addr_info": [1]}]'],
)
def test_output_that_is_damaged_is_invalid(
    read: Callable[[], object], printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in ("ip", "ovs-vsctl"):
        file = tmp_path / program
        file.write_text(f"#!/bin/sh\ncat <<'END'\n{printed}\nEND\n")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    if "kube-ipvs0" in printed and read not in (READERS[2], READERS[3]):
        assert not read()
        return
    with pytest.raises(Invalid, match=r"output of|addr_info"):
        read()
