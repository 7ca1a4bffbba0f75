"""The agent's support bundle through its own API."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from typing import TYPE_CHECKING

import aiohttp
import pytest
from agent_context import agent_parts

from antrea.agent.api.certificate import certificate
from antrea.agent.api.server import AgentApi
from antrea.agent.api.support_bundle import contents
from antrea.agent.api.view import AgentView
from antrea.config.agent import AgentConfig
from antrea.config.effect import begin
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.facts.ovs import PodInterface
from antrea.features.framework.config_validation import accept_agent
from antrea.outside.support_bundle.plan import Logs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

WEB = PodInterface("web-0-1a2b3c", "c" * 64, "shop", "web-0", "aa:00:00:00:00:01", ("10.1.0.4",), 9, "uuid1")
PLANTED = "planted-secret-value"
TEXT = f"apiPort: 0\nclusterPassword: {PLANTED}\n"


class NoSwitch:
    """Stands where ovs-ofctl stands, without a switch."""

    up = False

    async def lines(self, command: str, *arguments: str) -> AsyncIterator[str]:
        if not self.up:
            raise Unavailable("OVS")
        yield f"{command} {arguments}"


@pytest.fixture
def view() -> AgentView:
    facts = Facts()
    facts.put(WEB)
    effect = begin(AgentConfig, accept_agent, TEXT)
    return AgentView(lambda: effect, facts, NoSwitch(), {"Classifier": 0}, parts=agent_parts(facts))


async def test_agent_bundle_has_upstreams_files_and_our_own(view: AgentView, tmp_path: Path) -> None:
    order = await contents(view, str(tmp_path))
    paths = {*order.documents, *(command.path for command in order.commands)}
    assert paths == {
        *(
            "agentinfo",
            "flows",
            "groups",
            "iptables",
            "ipset",
            "nftables",
            "rule",
            "route",
            "link",
            "address",
        ),
        *(
            "route-table-all",
            "ovsports",
            "networkpolicies",
            "addressgroups",
            "appliedtogroups",
            "fqdncache",
            "podinterfaces",
            "config",
            "featuregates",
            "antrea-agent.conf",
        ),
        *(
            "conditions",
            "tables",
            "memory",
            "stacks",
            "meters",
            "neighbour",
            "ip6tables",
            "rule6",
            "serviceexternalips",
            "route6",
        ),
        *("ovs-port-stats", "ovs-vsctl-show", "ovs-interfaces", "ovs-coverage"),
    }
    assert order.logs == (
        Logs("logs/agent", str(tmp_path), "antrea-agent"),
        Logs("logs/ovs", str(tmp_path), "ovs"),
    )
    assert "test_agent_bundle_has_upstreams_files" in order.documents["stacks"]
    assert "VmRSS" in order.documents["memory"]
    assert order.documents["tables"] == {"Classifier": 0}


async def collected(session: aiohttp.ClientSession, url: str) -> bool:
    async with session.get(f"{url}/agent", ssl=False) as answer:
        return bool((await answer.json())["status"] == "Collected")


async def test_agent_bundle_is_served_without_secrets_of_its_configuration(
    view: AgentView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    server = AgentApi(view, certificate(), None, token_file=tmp_path / "token")
    running = asyncio.create_task(server.run())
    try:
        await server.serves.wait()
        token = (tmp_path / "token").read_text()
        url = f"https://127.0.0.1:{server.port}/apis/system.antrea.io/v1beta1/supportbundles"
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
            body = {"metadata": {"name": "agent"}}
            async with session.post(url, json=body, ssl=False) as answer:
                assert answer.status == 201
            async with asyncio.timeout(60):
                while not await collected(session, url):  # noqa: ASYNC110 (of another process)
                    await asyncio.sleep(0.05)
            async with session.get(f"{url}/agent/download", ssl=False) as answer:
                data = await answer.read()
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            found = {e.name: archive.extractfile(e).read().decode() for e in archive}  # type: ignore[union-attr]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert [name for name, text in found.items() if PLANTED in text or token in text] == []
    assert found["antrea-agent.conf"] == TEXT.replace(PLANTED, "<redacted>")
    assert "pod_name: web-0" in found["podinterfaces"]
    assert not any(name.startswith("bundle_") for name in os.listdir(tmp_path))  # noqa: PTH208
