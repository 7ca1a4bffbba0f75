"""What checks make of what they find, without a cluster."""

from __future__ import annotations

import asyncio
import base64
import signal
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner
from loopback import answering

from antrea.antctl import mode
from antrea.antctl.check.cluster_tests import Checker, kubernetes_version
from antrea.antctl.check.installation_tests import Bench, NotRunnable, Options, to_internet
from antrea.antctl.check.internet import Target, target_of
from antrea.antctl.check.report import Choice, Report
from antrea.antctl.check.room import (
    Room,
    daemon_set_left,
    deployment_left,
    interruptible,
    trouble,
    wait_ready,
)
from antrea.antctl.check.workload import DEFAULT_IMAGE, image_of_agents
from antrea.antctl.failure import Failure
from antrea.antctl.main import antctl
from antrea.antctl.request import Server
from antrea.apis.memberlist import format_keys, parse_keys
from antrea.outside.kube.access import Access


def deployment(generation: int = 1, **status: int) -> dict[str, Any]:
    return {"metadata": {"generation": generation}, "spec": {"replicas": 1}, "status": status}


@pytest.mark.parametrize(
    ("found", "left"),
    [
        (deployment(2, observedGeneration=1), "its spec update is to be observed"),
        (deployment(observedGeneration=1), "0 out of 1 new replicas have been updated"),
        (deployment(observedGeneration=1, updatedReplicas=1, replicas=2), "1 old replicas are pending termination"),
        (deployment(observedGeneration=1, updatedReplicas=1, replicas=1), "0 of 1 updated replicas are available"),
        (deployment(observedGeneration=1, updatedReplicas=1, replicas=1, availableReplicas=1), ""),
    ],
)  # fmt: skip
def test_a_deployment_is_ready_when_its_newest_pods_are(found: dict[str, Any], left: str) -> None:
    assert deployment_left(found) == left


def test_a_daemon_set_is_ready_when_every_node_has_its_newest_pod() -> None:
    status = {"observedGeneration": 1, "desiredNumberScheduled": 3, "updatedNumberScheduled": 2}
    found = {"metadata": {"generation": 1}, "status": status}
    assert daemon_set_left(found) == "2 out of 3 new pods have been updated"
    status["updatedNumberScheduled"] = 3
    assert daemon_set_left(found) == "0 of 3 updated pods are available"
    status["numberAvailable"] = 3
    assert daemon_set_left(found) == ""


def pulling(reason: str, message: str) -> dict[str, Any]:
    """A Pod whose image cannot be pulled."""
    return {
        "status": {
            "containerStatuses": [
                {"image": "x:1", "state": {"waiting": {"reason": reason, "message": message}}},
                {"image": "y:1", "state": {"running": {}}},
            ]
        }
    }


def test_what_pods_wait_for_is_said_once() -> None:
    unschedulable = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
    waiting = {"state": {"waiting": {"reason": "CreateContainerError", "message": "no such\nuser"}}}
    pods: list[dict[str, Any]] = [
        {"status": {"conditions": [unschedulable]}},
        {"status": {"conditions": [], "containerStatuses": [{"image": "z:1", **waiting}]}},
        *[pulling("ErrImagePull", "no such\nhost")] * 2,
    ]
    assert trouble(pods) == {
        "0/1 nodes are available": "0/1 nodes are available",
        "CreateContainerError: no such\nuser": "CreateContainerError: no such user",
        "image x:1": "ErrImagePull: no such host",
    }


async def test_an_image_that_cannot_be_pulled_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def unready(_: web.BaseRequest) -> web.Response:
        return web.json_response(deployment(observedGeneration=1, updatedReplicas=1, replicas=1))

    backed_off = 'Back-off pulling image "x:1"'
    states = iter((("ErrImagePull", "from port 1"), ("ImagePullBackOff", backed_off)) * 50)
    monkeypatch.setattr("antrea.antctl.check.room.LOOK_SECONDS", 0.02)

    def wait(server: Server) -> None:
        wait_ready(
            *(server, Report("c"), "Deployment", "d", "/deployments"),
            seconds=0.3,
            trouble=lambda: trouble([pulling(*next(states))]),
        )

    async with answering(unready) as url:
        with pytest.raises(Failure, match="did not become ready"):
            await asyncio.to_thread(wait, Server(Access(url=url), 60.0))
    assert capsys.readouterr().out.splitlines() == [
        '[c] Waiting for Deployment "d" to become ready...',
        '[c] Waiting for Deployment "d": 0 of 1 updated replicas are available... (ErrImagePull: from port 1)',
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("\n\n", "no key found"),
        (base64.b64encode(b"short").decode(), "key at index 0 is invalid: it has 5 bytes, not 16, 24 or 32"),
        (f"{base64.b64encode(b'k' * 16).decode()}\n\n!", "key at index 1 is not valid base64: "),
    ],
)
def test_a_gossip_key_that_agents_cannot_use_is_named(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{why}"):
        parse_keys(text)


def test_gossip_keys_are_read_in_order() -> None:
    keys = [b"a" * 16, b"b" * 32]
    assert parse_keys("\n".join(base64.b64encode(key).decode() for key in keys) + "\n") == keys
    assert parse_keys(format_keys(keys)) == keys


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("v1.34.1", ""),
        ("v1.23.0-gke.100", ""),
        ("1.30.2+k3s1", ""),
        ("v1.22.9", "Kubernetes min version required: v1.23.0"),
        ("nightly", 'error parsing server version: invalid version "nightly"'),
    ],
)
async def test_kubernetes_has_to_be_new_enough(told: str, why: str) -> None:
    async def version(_: web.BaseRequest) -> web.Response:
        return web.json_response({"gitVersion": told})

    found = ""
    async with answering(version) as url:
        try:
            await asyncio.to_thread(
                kubernetes_version, Checker(Room(Server(Access(url=url), 60.0), Report("x")))
            )
        except Failure as error:
            found = error.format_message()
    assert found == why


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_check_like_an_error_and_only_inside_of_it(name: signal.Signals) -> None:
    before = signal.getsignal(name)
    with pytest.raises(Failure, match="interrupted"), interruptible():
        signal.raise_signal(name)
    assert signal.getsignal(name) == before


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--run", "("), "invalid regex for run filter: missing ), unterminated subpattern at position 0"),
        (("--skip", "("), "invalid regex for skip filter: missing ), unterminated subpattern at position 0"),
        (("--internet-target", "a b"), "--internet-target 'a b' is not HOST, HOST:PORT or [IPv6]:PORT"),
        (("--internet-target", ""), "--internet-target '' is not HOST"),
        (("--internet-target", "host:65536"), "--internet-target 'host:65536' is not HOST"),
        (("--network-policy-delay", "500ms"), "NetworkPolicy delay should not be less than 1s"),
        (("--network-policy-delay", "2"), "NetworkPolicy delay is not a valid duration string: "),
    ],
)
def test_bad_options_are_said_before_anything_is_made(words: tuple[str, ...], error: str) -> None:
    result = CliRunner().invoke(antctl(mode.REMOTE), ["check", "installation", *words], prog_name="antctl")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {error}")


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("example.com", ("example.com", 80)),
        ("example.com:443", ("example.com", 443)),
        ("192.0.2.10:8080", ("192.0.2.10", 8080)),
        ("[2001:db8::1]:443", ("2001:db8::1", 443)),
        ("[2001:db8::1]", ("2001:db8::1", 80)),
    ],
)
def test_a_target_has_a_host_and_a_port(text: str, target: tuple[str, int]) -> None:
    assert target_of(text) == target


def test_tests_are_chosen_by_name_and_no_test_is_no_success() -> None:
    tests = dict.fromkeys(("pod-to-pod", "pod-to-service", "memberlist"), 0)
    assert list(Choice.of("", "").of_tests(tests)) == list(tests)
    assert list(Choice.of("pod-to", "service").of_tests(tests)) == ["pod-to-pod"]
    with pytest.raises(Failure, match="no test is left by --run and --skip; the tests are pod-to-pod, "):
        Choice.of("pod", "to").of_tests(tests)


class OneClient(Bench):
    """A client whose attempts, and those of its Node, fail for these reasons."""

    def __init__(self, target: Target | None, of_pod: str, of_node: str) -> None:
        room = Room(Server(Access(url="http://127.0.0.1:9"), 1.0), Report("c"))
        super().__init__(room, Options("kube-system", "", Choice(), 2.0, target))
        self.clients, self.node = ["client"], "n1"
        self._of_pod, self._of_node = of_pod, of_node

    def reaches(self, client: str, host: str, port: int = 80) -> str:
        return self._of_pod

    def unreached_by_node(self, host: str, port: int) -> str:
        return self._of_node


def test_the_internet_is_missed_where_the_node_or_the_user_has_it() -> None:
    to_internet(OneClient(None, "", "timeout"))
    with pytest.raises(
        NotRunnable, match=r"nor its Node n1 reaches api.github.com port 80 \(no route\), as in "
    ):
        to_internet(OneClient(None, "timeout", "no route"))
    with pytest.raises(Failure, match=r"was not able to connect to api\.github\.com: timeout"):
        to_internet(OneClient(None, "timeout", ""))
    with pytest.raises(Failure, match=r"was not able to connect to example\.com: timeout"):
        to_internet(OneClient(Target("example.com", 443), "timeout", "no route"))


async def test_test_pods_run_the_image_of_the_agents_of_antrea_alone() -> None:
    """A DaemonSet of another Namespace, whatever its name and labels, is not asked for."""
    containers = [{"name": "antrea-ovs", "image": "a:1"}, {"name": "antrea-agent", "image": "b:1"}]
    body = {"spec": {"template": {"spec": {"containers": containers}}}}
    asked: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        asked.append(request.path)
        return web.json_response(body) if "/antrea-system/" in request.path else web.Response(status=404)

    async with answering(answer) as url:
        server = Server(Access(url=url), 60.0)
        images = [
            await asyncio.to_thread(image_of_agents, server, name)
            for name in ("antrea-system", "kube-system")
        ]
    assert images == ["b:1", DEFAULT_IMAGE]
    assert asked == [
        f"/apis/apps/v1/namespaces/{name}/daemonsets/antrea-agent"
        for name in ("antrea-system", "kube-system")
    ]
