"""The external_ids of ports, as upstream writes and reads them."""

from __future__ import annotations

import msgspec
import pytest

from antrea.facts.ovs import OvsPort, PodInterface
from antrea.host.ovs_port import PodPort, RealizedPort

POD = PodPort(
    container_id="c1",
    pod_namespace="ns",
    pod_name="pod",
    mac="aa:bb:cc:dd:ee:01",
    ips=("10.0.0.1", "fd00::1"),
    netns="/var/run/netns/n1",
)
IDS = {
    "antrea-type": "container",
    "attached-mac": "aa:bb:cc:dd:ee:01",
    "container-id": "c1",
    "ip-address": "10.0.0.1,fd00::1",
    "pod-name": "pod",
    "pod-namespace": "ns",
    "net-ns": "/var/run/netns/n1",
}


def test_a_pod_port_carries_the_keys_of_upstream_and_reads_them_back() -> None:
    assert POD.external_ids() == IDS
    assert PodPort.read(IDS) == POD


def test_the_name_inside_the_pod_is_written_only_when_it_is_not_eth0() -> None:
    second = msgspec.structs.replace(POD, if_dev="eth1", ips=())
    assert second.external_ids() == {**IDS, "if-dev": "eth1", "ip-address": ""}
    assert PodPort.read(second.external_ids()) == second


def test_ids_of_an_older_version_still_tell_whose_port_it_is() -> None:
    old = {"antrea-type": "container", "container-id": "c1", "attached-mac": "AA:BB:CC:DD:EE:01"}
    assert PodPort.read(old) == PodPort(
        container_id="c1", pod_namespace="", pod_name="", mac="aa:bb:cc:dd:ee:01", ips=()
    )


@pytest.mark.parametrize(
    "ids", [{}, {"antrea-type": "container"}, {"antrea-type": "gateway", "container-id": "c1"}]
)
def test_other_ports_are_not_taken_for_a_pods(ids: dict[str, str]) -> None:
    assert PodPort.read(ids) is None


@pytest.mark.parametrize(
    ("ids", "fact"),
    [
        (
            IDS,
            PodInterface(
                name="pod-abc",
                container_id="c1",
                pod_namespace="ns",
                pod_name="pod",
                mac="aa:bb:cc:dd:ee:01",
                ips=("10.0.0.1", "fd00::1"),
                ofport=3,
                port_uuid="u1",
                netns="/var/run/netns/n1",
            ),
        ),
        (
            {"antrea-type": "tunnel"},
            OvsPort(name="pod-abc", type="tunnel", ofport=3, mac="02:00:00:00:00:01"),
        ),
        ({}, None),
        ({"antrea-type": "container"}, None),
    ],
)
def test_a_port_becomes_the_fact_of_its_type(
    ids: dict[str, str], fact: PodInterface | OvsPort | None
) -> None:
    assert RealizedPort("pod-abc", "u1", 3, "02:00:00:00:00:01", ids).fact() == fact
