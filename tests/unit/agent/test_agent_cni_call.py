"""What a CNI request must be, and the code that answers one that is not."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antrea.agent.cni.request import Call, Failed, read_call
from antrea.apis.cni import (
    VERSIONS,
    Attachment,
    Code,
    Dns,
    Error,
    Interface,
    Ip,
    IpamConfig,
    NetworkConfig,
    Result,
    Route,
)

CONFIG: dict[str, Any] = {
    "cniVersion": "1.0.0",
    "name": "antrea",
    "type": "antrea",
    "ipam": {"type": "host-local"},
}
REQUEST: dict[str, Any] = {
    "api": 1,
    "command": "ADD",
    "containerId": "c1",
    "netns": "/var/run/netns/a",
    "ifName": "eth0",
    "args": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web",
    "path": "/opt/cni/bin",
}


def line(config: Any = None, **changes: Any) -> bytes:
    text = config if isinstance(config, str) else json.dumps(CONFIG | (config or {}))
    return json.dumps({**REQUEST, "config": text, **changes}).encode() + b"\n"


@pytest.mark.parametrize("opening", ['{"a":', "["])
def test_nesting_without_end_is_refused_in_the_request_and_in_the_configuration(opening: str) -> None:
    deep = opening * 100_000
    assert refused(deep.encode() + b"\n").code == Code.DECODING_FAILURE
    assert refused(line('{"cniVersion":"1.0.0","unknown":' + deep)).code == Code.DECODING_FAILURE


def refused(octets: bytes) -> Error:
    with pytest.raises(Failed) as failed:
        read_call(octets)
    return failed.value.error


def answered(octets: bytes) -> Error | None:
    """None for a call that may be carried out."""
    try:
        read_call(octets)
    except Failed as error:
        return error.error
    return None


def test_a_call_has_all_that_the_runtime_and_the_configuration_said() -> None:
    config = {
        "mtu": 1400,
        "dns": {"nameservers": ["10.96.0.10"]},
        "runtimeConfig": {"portMappings": []},
        "unknown": 1,
        "prevResult": {
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "eth0", "sandbox": "/var/run/netns/a"}],
            "ips": [{"address": "10.244.1.2/24", "gateway": "10.244.1.1", "interface": 0}],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
        "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}],
    }
    call = read_call(line(config))
    assert call == Call(
        command="ADD",
        version="1.0.0",
        container_id="c1",
        netns="/var/run/netns/a",
        if_name="eth0",
        pod_namespace="default",
        pod_name="web",
        config=NetworkConfig(
            cni_version="1.0.0",
            name="antrea",
            type="antrea",
            mtu=1400,
            dns=Dns(nameservers=("10.96.0.10",)),
            ipam=IpamConfig("host-local"),
            prev_result=Result(
                cni_version="1.0.0",
                interfaces=(Interface("eth0", sandbox="/var/run/netns/a"),),
                ips=(Ip("10.244.1.2/24", gateway="10.244.1.1", interface=0),),
                routes=(Route("0.0.0.0/0"),),
            ),
            valid_attachments=(Attachment("c1", "eth0"),),
        ),
    )
    assert (call.pod, call.dns) == ("default/web", Dns(nameservers=("10.96.0.10",)))


def test_del_needs_neither_namespace_nor_pod() -> None:
    call = read_call(line(command="DEL", netns="", args=""))
    assert (call.netns, call.pod, call.dns) == ("", "", Dns())


def test_gc_and_status_need_no_container() -> None:
    for command in ("GC", "STATUS"):
        octets = json.dumps(
            {"api": 1, "command": command, "config": json.dumps(CONFIG | {"cniVersion": "1.1.0"})}
        ).encode()
        assert read_call(octets).command == command


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_has_the_commands_of_its_specification(version: str) -> None:
    commands = {"ADD", "DEL", "CHECK", "GC", "STATUS"}
    number = VERSIONS.index(version)
    accepted = {
        command for command in commands if answered(line({"cniVersion": version}, command=command)) is None
    }
    since = {
        "CHECK": VERSIONS.index("0.4.0"),
        "GC": VERSIONS.index("1.1.0"),
        "STATUS": VERSIONS.index("1.1.0"),
    }
    assert accepted == {command for command in commands if number >= since.get(command, 0)}


def test_gc_of_an_old_version_says_which_version_has_it() -> None:
    assert refused(line(command="GC")) == Error(
        cni_version="1.0.0",
        code=Code.INCOMPATIBLE_CNI_VERSION,
        msg="CNI version 1.0.0 does not have GC, 1.1.0 is the first that has",
    )


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0", "2.0.0", "1.0", ""])
def test_an_unsupported_version_is_answered_with_the_list(version: str) -> None:
    assert refused(line({"cniVersion": version})) == Error(
        cni_version="1.1.0",
        code=Code.INCOMPATIBLE_CNI_VERSION,
        msg=f"Unsupported CNI version [{version}], supported versions 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0",
    )


def test_a_configuration_without_a_version_is_of_the_first_specification() -> None:
    assert "[0.1.0]" in refused(line('{"name":"antrea"}')).msg


@pytest.mark.parametrize(
    ("octets", "code"),
    [
        (b"", Code.DECODING_FAILURE),
        (b"\n", Code.DECODING_FAILURE),
        (b'{"api":1', Code.DECODING_FAILURE),
        (b"[]", Code.DECODING_FAILURE),
        (b'{"api":1,"config":"\xff"}', Code.DECODING_FAILURE),
        (b'{"api":1,"command":7}', Code.DECODING_FAILURE),
        (b"{}", Code.INCOMPATIBLE_API_VERSION),
        (line(api=2), Code.INCOMPATIBLE_API_VERSION),
        (line(""), Code.DECODING_FAILURE),
        (line("{"), Code.DECODING_FAILURE),
        (line('{"name":"\x00"}'), Code.DECODING_FAILURE),
        (line("null"), Code.INVALID_NETWORK_CONFIG),
        (line("[1]"), Code.INVALID_NETWORK_CONFIG),
        (line({"mtu": "1400"}), Code.INVALID_NETWORK_CONFIG),
        (line({"ipam": "host-local"}), Code.INVALID_NETWORK_CONFIG),
        (line({"prevResult": {"ips": [{}]}}), Code.INVALID_NETWORK_CONFIG),
        (line({"mtu": 575}), Code.INVALID_NETWORK_CONFIG),
        (line({"mtu": 65536}), Code.INVALID_NETWORK_CONFIG),
        (line({"mtu": -1}), Code.INVALID_NETWORK_CONFIG),
        (line({"name": ""}), Code.INVALID_NETWORK_CONFIG),
        (line({"name": "a/b"}), Code.INVALID_NETWORK_CONFIG),
        (line({"type": "bridge"}), Code.UNSUPPORTED_FIELD),
        (line({"ipam": None}), Code.UNSUPPORTED_FIELD),
        (line({"ipam": {"type": "dhcp"}}), Code.UNSUPPORTED_FIELD),
        (line(command=""), Code.INVALID_ENVIRONMENT),
        (line(command="add"), Code.INVALID_ENVIRONMENT),
        (line(containerId=""), Code.INVALID_ENVIRONMENT),
        (line(containerId="../c1"), Code.INVALID_ENVIRONMENT),
        (line(containerId="c1\n"), Code.INVALID_ENVIRONMENT),
        (line(netns=""), Code.INVALID_ENVIRONMENT),
        (line(ifName="eth0123456789012"), Code.INVALID_ENVIRONMENT),
        (line(ifName="a b"), Code.INVALID_ENVIRONMENT),
        (line(ifName=".."), Code.INVALID_ENVIRONMENT),
        (line(args="K8S_POD_NAME"), Code.INVALID_ENVIRONMENT),
        (line(args=""), Code.INVALID_ENVIRONMENT),
        (line(args="K8S_POD_NAME=web"), Code.INVALID_ENVIRONMENT),
        (line(args="K8S_POD_NAME=;K8S_POD_NAMESPACE=default"), Code.INVALID_ENVIRONMENT),
    ],
)
def test_bad_input_gets_the_code_that_says_whose_fault_it_is(octets: bytes, code: Code) -> None:
    assert refused(octets).code == code


def test_missing_variables_are_named() -> None:
    error = refused(line(containerId="", netns="", ifName=""))
    assert error.msg == (
        "Required environment variables missing for ADD: CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME"
    )


def test_a_wrong_type_is_named_by_its_path() -> None:
    assert refused(line({"mtu": "1400"})).msg == (
        "Invalid network config: Expected `int`, got `str` - at `$.mtu`"
    )


def test_an_error_speaks_the_version_that_was_asked_for() -> None:
    assert refused(line({"cniVersion": "0.4.0", "mtu": 1})).cni_version == "0.4.0"


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(msgspec.json.encode)
)
def test_no_request_raises_anything_but_an_answer(octets: bytes) -> None:
    with pytest.raises(Failed):
        read_call(octets)


@given(
    st.dictionaries(
        st.sampled_from(
            ["cniVersion", "name", "type", "mtu", "dns", "ipam", "prevResult", "cni.dev/valid-attachments"]
        ),
        st.none()
        | st.text(max_size=3)
        | st.integers()
        | st.just({"type": "host-local"})
        | st.just([])
        | st.just({}),
    )
)
def test_no_configuration_raises_anything_but_an_answer(changes: dict[str, Any]) -> None:
    error, said = answered(line(changes)), CONFIG | changes
    if error is None:
        config = read_call(line(changes)).config
        assert (config.name, config.cni_version) == (said["name"], said["cniVersion"])
        assert isinstance(said["type"], str)
        assert isinstance(said.get("mtu", 0), int)
        assert not any(isinstance(said.get(key), str | int) for key in ("dns", "ipam", "prevResult"))
    else:
        assert error.code in (
            Code.INCOMPATIBLE_CNI_VERSION, Code.UNSUPPORTED_FIELD, Code.INVALID_NETWORK_CONFIG
        )  # fmt: skip
        assert error.msg
        assert changes
