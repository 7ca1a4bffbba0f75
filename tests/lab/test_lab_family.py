"""The same cluster with IPv6 alone and with both families; and with nftables in kube-proxy, or without kube-proxy."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from antrea.lab import cluster, demo
from antrea.lab.record import Record
from antrea.lab.settings import Settings

if TYPE_CHECKING:
    from antrea.lab.topology import Family

POD_ADDRESSES = {"ipv6": ["fd00:10:244:"], "dual": ["10.244.", "fd00:10:244:"]}


@pytest.mark.parametrize(
    ("family", "kube_proxy"), [("dual", "nftables"), pytest.param("ipv6", "iptables", marks=pytest.mark.wide)]
)
def test_pods_reach_each_other_by_every_address_and_by_name(family: Family, kube_proxy: str) -> None:
    """What `antrea-lab demo` shows: it raises unless each ping and fetch succeeds."""
    record = Record(f"{family}{os.getpid()}")
    said: list[str] = []
    settings = Settings(nodes=2, family=family, kube_proxy=kube_proxy, cni="antrea")  # type: ignore[arg-type]
    try:
        lab = cluster.up(record, settings, print)
        demo.show(lab, said.append)
    finally:
        cluster.down(record)

    pings = [line.rsplit(" ", 1)[1] for line in said if line.startswith("\n$") and " ping " in line]
    assert [p.startswith(prefix) for p, prefix in zip(pings, POD_ADDRESSES[family], strict=True)] == [
        True
    ] * len(pings)
    assert sum("3 received, 0% packet loss" in line for line in said) == len(pings)
    assert said.count("server") == len(pings) + 1
