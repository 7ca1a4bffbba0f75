"""`antctl packetcapture` on a workstation: the object that it makes, and the file that it fetches."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from antctl_api import JsonHandler, run_antctl, serving

from antrea.antctl import mode
from antrea.antctl.failure import Failure
from antrea.features.packet_capture.antctl_part import command as module
from antrea.features.packet_capture.antctl_part.flow import packet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

PATH = "/apis/crd.antrea.io/v1alpha1/packetcaptures"


class Api(ThreadingHTTPServer):
    """Keeps what was created and deleted; `status` is that of each PacketCapture."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.created: list[dict[str, Any]] = []
        self.deleted: list[str] = []
        self.status: dict[str, Any] = {}
        self.absent = ""
        """Path of an object that does not exist."""
        self.agent_conf: str | None = None


class Handler(JsonHandler, BaseHTTPRequestHandler):
    server: Api

    def do_POST(self) -> None:
        self.server.created.append(self.body())
        self.answer(201, self.server.created[-1])

    def do_GET(self) -> None:
        if self.path.startswith(PATH):
            self.answer(200, {"status": self.server.status})
        elif "/pods/" in self.path and self.path != self.server.absent:
            self.answer(200, {})
        elif self.path.endswith("/configmaps/antrea-config") and self.server.agent_conf is not None:
            self.answer(200, {"data": {"antrea-agent.conf": self.server.agent_conf}})
        else:
            self.answer(404, {"kind": "Status", "message": "not found"})

    def do_DELETE(self) -> None:
        self.server.deleted.append(self.path)
        self.answer(200, {})


@pytest.fixture
def api() -> Iterator[Api]:
    with serving(Api()) as server:
        yield server


def run(api: Api, folder: Path, *words: str) -> Result:
    return run_antctl(mode.REMOTE, api, folder, "packetcapture", *words)


def completed(reason: str, message: str = "", path: str = "") -> dict[str, Any]:
    condition = {"type": "PacketCaptureComplete", "status": "True", "reason": reason, "message": message}
    return {"conditions": [condition], "filePath": path}


def test_nowait_makes_the_object_and_returns(api: Api, tmp_path: Path) -> None:
    result = run(
        api, tmp_path, "-S", "shop/web-0", "-D", "db-0", "--namespace", "data", "-f", "tcp,tcp_dst=5432,tcp_flags=+syn-ack", "-n", "7",
        "-p", "Destination", "-d", "Both", "-t", "2m", "--nowait",
    )  # fmt: skip
    assert (result.exit_code, result.stdout) == (0, "PacketCapture Name: shop-web-0-db-0\n")
    (made,) = api.created
    assert made["spec"] == {
        "source": {"pod": {"namespace": "shop", "name": "web-0"}},
        "destination": {"pod": {"namespace": "data", "name": "db-0"}},
        "packet": {
            "ipFamily": "IPv4", "protocol": 6,
            "transportHeader": {"tcp": {"dstPort": 5432, "flags": [{"value": 2, "mask": 18}]}},
        },
        "direction": "Both", "timeout": 120, "captureConfig": {"firstN": {"number": 7}}, "capturePoint": "Destination",
    }  # fmt: skip
    assert api.deleted == []


def test_names_of_pods_of_any_length_give_a_valid_name(api: Api, tmp_path: Path) -> None:
    pods = [f"{'n' * 63}/{'p' * 250}{end}" for end in ("a.b", "a.c")]
    for pod in pods:
        assert run(api, tmp_path, "-S", pod, "-D", pods[0], "--nowait").exit_code == 0
    names = [made["metadata"]["name"] for made in api.created]
    assert [len(name) for name in names] == [253, 253]
    assert len(set(names)) == 2


@pytest.mark.parametrize(("reason", "code"), [("Succeed", 0), ("Timeout", 1)])
def test_the_file_is_fetched_and_the_object_deleted(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, code: int
) -> None:
    asked = []

    def cat(server: Any, pod: str, path: str, copy: Any, **more: Any) -> None:
        asked.append((pod, path, more["container"]))
        copy.write(b"\n\r\r\n")

    monkeypatch.setattr(module, "read_file", cat)
    message = "" if reason == "Succeed" else "context deadline exceeded"
    api.status = completed(reason, message, "antrea-agent-x:/tmp/antrea/packetcapture/packets/a.pcapng")
    result = run(api, tmp_path, "-S", "web-0", "-o", str(tmp_path))
    assert result.exit_code == code, result.output
    assert asked == [
        ("kube-system/antrea-agent-x", "/tmp/antrea/packetcapture/packets/a.pcapng", "antrea-agent")
    ]
    assert result.stdout == f"Captured packets file: {tmp_path}/a.pcapng\n"
    assert message in result.stderr
    assert (tmp_path / "a.pcapng").read_bytes() == b"\n\r\r\n"
    name = api.created[0]["metadata"]["name"]
    assert name.startswith("web-0-")
    assert api.deleted == [f"{PATH}/{name}"]


@pytest.mark.parametrize("place", ["-S", "-D"])
def test_a_pod_that_does_not_exist_fails_at_once(api: Api, tmp_path: Path, place: str) -> None:
    api.absent = "/api/v1/namespaces/shop/pods/web-0"
    result = run(api, tmp_path, place, "shop/web-0")
    assert (result.exit_code, result.stderr) == (1, "Error: Pod shop/web-0 does not exist\n")
    assert api.created == []
    assert run(api, tmp_path, place, "shop/web-0", "--nowait").exit_code == 0, "it may be created later"


@pytest.mark.parametrize(
    ("conf", "made"),
    [
        ("featureGates: {PacketCapture: false}", 0),
        ("featureGates: {PacketCapture: true}", 1),
        ("{", 1),
        (None, 1),
    ],
)
def test_a_gate_that_is_off_fails_at_once(api: Api, tmp_path: Path, conf: str | None, made: int) -> None:
    api.agent_conf, api.status = conf, completed("Succeed")
    result = run(api, tmp_path, "-S", "web-0")
    assert (result.exit_code, len(api.created)) == (1 - made, made), result.stderr
    off = "the feature gate PacketCapture is off in ConfigMap kube-system/antrea-config: set featureGates.PacketCapture to true"
    assert (off in result.stderr) == (not made)


def test_a_capture_that_no_agent_takes_fails_soon(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TAKEN_SECONDS", 0.5)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.1)
    result = run(api, tmp_path, "-S", "web-0")
    assert result.exit_code == 1
    assert "no agent has reported on PacketCapture web-0-" in result.stderr
    assert len(api.deleted) == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "must specify at least one of --source or --destination"),
        (("-S", "10.0.0.1"), "one of source and destination must be a Pod"),
        (("-S", "a/b/c"), "source should be in the format of Namespace/Pod, Pod, or IPv4/IPv6"),
        (("-S", "a", "-n", "0"), "packet number should be larger than 0"),
        (("-S", "a", "-t", "6m"), "timeout cannot be longer than 5m0s"),
        (("-S", "a", "-p", "Destination"), "a destination Pod must be specified when capture-point is 'Destination'"),
        (("-S", "a", "-d", "back"), 'invalid direction: "back"'),
        (("-S", "a", "-f", "tcp,tcp_dst=x"), "tcp_dst=x is not a number"),
        (("-S", "a", "-f", "icmp_code=1"), "icmp_type must be specified when icmp_code is provided"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(api: Api, tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    result = run(api, tmp_path, *words)
    assert result.exit_code == 1
    assert why in result.stderr
    assert api.created == []


def test_flows_of_both_families() -> None:
    assert packet("icmpv6, icmpv6_type=icmpv6-unreach,icmpv6_code=1") == {
        "ipFamily": "IPv6", "protocol": 58,
        "transportHeader": {"icmpv6": {"messages": [{"type": "icmpv6-unreach", "code": 1}]}},
    }  # fmt: skip
    assert packet("") == {"ipFamily": "IPv4"}
    with pytest.raises(Failure, match="invalid TCP flag foo"):
        packet("tcp_flags=+foo")
