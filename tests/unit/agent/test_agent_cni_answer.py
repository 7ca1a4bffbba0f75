"""The octets that answer a CNI call."""

from __future__ import annotations

import json

import pytest

from antrea.agent.cni.request import Call
from antrea.agent.cni.response import Attached, failure, result_of, success
from antrea.apis.cni import VERSIONS, Code, Dns, Error, NetworkConfig

ATTACHED = Attached(
    host_name="web-84d6-81d702",
    mac="02:00:00:00:00:01",
    addresses=("10.244.1.2/24", "fd00:10:244:1::2/64"),
    gateways=("10.244.1.1", "fd00:10:244:1::1"),
)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_result_has_the_shape_of_its_version(version: str) -> None:
    dns = Dns(nameservers=("10.96.0.10",), search=("svc.cluster.local",))
    config = NetworkConfig(cni_version=version, dns=dns)
    call = Call(command="ADD", version=version, netns="/var/run/netns/a", if_name="eth0", config=config)
    four, six = ({"version": "4"}, {"version": "6"}) if version.startswith("0.") else ({}, {})
    octets = success(result_of(call, ATTACHED))
    assert (octets[:1], octets[-1:], octets.count(b"\n")) == (b"0", b"\n", 1)
    assert json.loads(octets[1:]) == {
        "cniVersion": version,
        "interfaces": [
            {"name": "web-84d6-81d702"},
            {"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/var/run/netns/a"},
        ],
        "ips": [
            {"address": "10.244.1.2/24", "gateway": "10.244.1.1", "interface": 1, **four},
            {"address": "fd00:10:244:1::2/64", "gateway": "fd00:10:244:1::1", "interface": 1, **six},
        ],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.244.1.1"}, {"dst": "::/0", "gw": "fd00:10:244:1::1"}],
        "dns": {"nameservers": ["10.96.0.10"], "search": ["svc.cluster.local"]},
    }


def test_a_success_without_result_prints_nothing() -> None:
    assert success(None) == b"0\n"


def test_an_error_is_one_line_whatever_it_says() -> None:
    error = Error(cni_version="1.0.0", code=Code.UNKNOWN, msg='two\nlines "quoted"', details="d")
    octets = failure(error)
    assert octets == (b'1{"cniVersion":"1.0.0","code":0,"msg":"two\\nlines \\"quoted\\"","details":"d"}\n')
