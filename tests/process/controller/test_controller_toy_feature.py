"""A feature plugs in whole: the toy's webhook, status, metric and leader's work, in the controller as it runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import sys
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from certificate_world import ApiServer
from loopback import answering
from toy_checkout import plug_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

BEACONS = "/apis/crd.antrea.io/v1alpha1/beacons"


@pytest.fixture
def port() -> Iterator[int]:
    """That nobody else is given meanwhile, and that a server may listen at."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


async def until(true: Callable[[], Awaitable[object]], what: str) -> None:
    try:
        async with asyncio.timeout(60):
            while not await true():  # noqa: ASYNC110 (another process has no event)
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not in time: {what}") from None


class World:
    """The controller of `folder`, its API server, and what they answer."""

    def __init__(self, folder: Path, port: int, session: aiohttp.ClientSession) -> None:
        self.api = ApiServer({f"{BEACONS}/a": {"metadata": {"uid": "u"}, "spec": {"ip": "203.0.113.7"}}})
        self.folder, self._port, self._session = folder, port, session
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    def configure(self, server: str) -> Path:
        """The configuration file."""
        kubeconfig, file = self.folder / "kubeconfig", self.folder / "antrea-controller.conf"
        made = {
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
            "current-context": "c",
        }
        kubeconfig.write_text(json.dumps(made))
        config = {"apiPort": self._port, "clientConnection": {"kubeconfig": str(kubeconfig)}}
        file.write_text(json.dumps(config))
        return file

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """0: it does not listen."""
        token = self.folder / "token"
        headers = {"Authorization": f"Bearer {token.read_text() if token.exists() else ''}"}
        try:
            async with self._session.request(
                method, f"https://127.0.0.1:{self._port}{path}", json=body, headers=headers, ssl=self._tls
            ) as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientError:
            return 0, ""

    async def judged(self, ip: str) -> Any:
        """The webhook's response to a Beacon; None: there is none yet."""
        beacon = {"metadata": {"name": "b"}, "spec": {"ip": ip}}
        request = {"uid": "1", "operation": "CREATE", "object": beacon}
        status, text = await self.ask("POST", "/validate/beacon", {"request": request})
        return json.loads(text)["response"] if status == 200 else None

    async def counts(self) -> bool:
        return "antrea_controller_beacon_count 1\n" in (await self.ask("GET", "/metrics"))[1]

    async def counts_both(self) -> bool:
        return "antrea_controller_beacon_count 2\n" in (await self.ask("GET", "/metrics"))[1]

    async def measures_policies(self) -> bool:
        name = "antrea_controller_network_policy_sync_duration_milliseconds_count"
        text = (await self.ask("GET", "/metrics"))[1]
        assert "\nantrea_controller_length_network_policy_queue " in text
        return int(text.partition(f"\n{name} ")[2].partition("\n")[0]) > 0

    async def has(self, path: str) -> bool:
        return path in self.api.objects

    async def shows_status(self) -> bool:
        return "status" in self.api.objects[f"{BEACONS}/a"]


@pytest.fixture
async def world(tmp_path: Path, port: int) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as last:
        found = World(tmp_path, port, await last.enter_async_context(aiohttp.ClientSession()))
        server = await last.enter_async_context(answering(found.api.serve))
        words = [
            sys.executable,
            "-P",
            "-m",
            "antrea.controller.main",
            "--config",
            str(found.configure(server)),
        ]
        words += ["--certificate-dir", f"{tmp_path}/certificates", "--token-file", f"{tmp_path}/token"]
        log = last.enter_context((tmp_path / "log").open("wb"))
        program = await asyncio.create_subprocess_exec(
            *words, env=plug_in(tmp_path), cwd=tmp_path, stdout=log, stderr=log
        )
        last.push_async_callback(program.wait)
        last.callback(program.terminate)
        last.callback(lambda: print((tmp_path / "log").read_text()))
        yield found


async def test_a_feature_of_one_folder_has_a_webhook_a_status_a_metric_and_the_leaders_work(
    world: World,
) -> None:
    await until(lambda: world.judged("203.0.113.8"), "the webhook answers")
    assert (await world.judged("203.0.113.8"))["allowed"] is True
    assert (await world.judged("nowhere"))["status"]["message"].startswith("spec.ip: 'nowhere'")
    await until(world.counts, "the metric counts the Beacon")
    leaders = "/api/v1/namespaces/kube-system/configmaps/beacons"
    await until(lambda: world.has(leaders), "the leader has begun")
    await until(world.shows_status, "the status is written")
    assert world.api.objects[f"{BEACONS}/a"]["status"] == {"seen": True}


async def test_a_part_that_fails_is_named_and_started_again_while_the_controller_goes_on(
    world: World,
) -> None:
    async def failed(times: int) -> bool:
        """In the condition and the metric."""
        status, text = await world.ask(
            "GET", "/apis/system.antrea.io/v1beta1/controllerinfos/antrea-controller"
        )
        rows = json.loads(text)["controllerConditions"] if status == 200 else ()
        said = {row["type"]: row.get("message", "") for row in rows}.get("PartFailed", "")
        return f"BeaconPart failed {times} times, last: RecursionError: a Beacon is broken" in said

    async def counted() -> bool:
        return (
            'antrea_controller_part_failure_count{part="BeaconPart"}'
            in (await world.ask("GET", "/metrics"))[1]
        )

    world.api.put(f"{BEACONS}/broken", {"metadata": {"uid": "b"}, "spec": {"ip": "203.0.113.9"}})
    await until(lambda: failed(2), "the condition names the part")
    await until(counted, "the metric counts the failures")
    await until(world.counts_both, "the controller goes on")


async def test_metrics_of_the_program_have_how_long_a_policy_took(world: World) -> None:
    await until(world.counts, "there are metrics")
    policies = "/apis/networking.k8s.io/v1/networkpolicies"
    world.api.put(
        f"{policies}/p", {"metadata": {"namespace": "shop", "uid": "p"}, "spec": {"podSelector": {}}}
    )
    await until(world.measures_policies, "the policy was worked out")
