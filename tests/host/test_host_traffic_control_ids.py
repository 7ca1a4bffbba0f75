"""Suricata beside a Pod: it finds an attack in mirrored packets, and stops one in redirected packets, in both families."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from agent_process import agent_process
from inspector import EXAMPLES, Inspector
from test_host_traffic_control import (
    ADDRESSES,
    CONFIG,
    CONTROLS,
    api,
    connected,
    flows,
    marked,
    ports,
)

if TYPE_CHECKING:
    from pathlib import Path

    from agent_process import AgentProcess
    from certificate_world import ApiServer
    from conftest import Namespaces

pytestmark = [pytest.mark.wide, pytest.mark.timeout(600), pytest.mark.usefixtures("suricata_root")]

HARMLESS, ATTACK = "/index.html", "/show?file=../../etc/passwd"
SERVER = """
import http.server, socket
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"page")
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
found = Server(("::", 80), Answer)
print("listening", flush=True)
found.serve_forever()
"""


def apply(server: ApiServer, file: str) -> None:
    """The TrafficControl of an example, for Pod a."""
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / file).read_text())
    found["spec"]["appliedTo"]["podSelector"]["matchLabels"] = {"app": "a"}
    name = found["metadata"]["name"]
    meta = {"uid": f"u-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    server.put(f"{CONTROLS}/{name}", {"metadata": meta, "spec": found["spec"]})


def gets(netns: Namespaces, space: str, six: int, target: str, _: AgentProcess | None = None) -> bool:
    """Whether Pod b gets this from Pod a, on a connection of its own."""
    address = f"[{ADDRESSES['a'][1]}]" if six else ADDRESSES["a"][0]
    command = f"curl -s -g -m 3 --path-as-is -o /dev/null -w '%{{http_code}}' 'http://{address}{target}'"
    return netns.run(command, space).stdout == "200"


def attacks(found: Inspector) -> set[tuple[str, str]]:
    return {(one["src_ip"], one["http"]["url"]) for one in found.alerts()}


SEEN = {(ADDRESSES["b"][0], ATTACK), ("fd74:0000:0000:0000:0000:0000:0000:0012", ATTACK)}


async def test_an_attack_is_found_in_copies_and_goes_through(netns: Namespaces, tmp_path: Path) -> None:
    async with agent_process(netns, tmp_path, dict(os.environ), CONFIG, api()) as agent:
        pods = await connected(netns, agent)
        apply(agent.api, "mirror.yaml")
        await agent.until(lambda agent: len(marked(agent)) == 2, "the flows of Pod a mirror")
        with netns.serving(pods["a"], SERVER), Inspector("suricata-ids") as found:
            for six in (0, 1):
                assert gets(netns, pods["b"], six, HARMLESS)
                assert gets(netns, pods["b"], six, ATTACK)
            await agent.until(lambda _: len(attacks(found)) == 2, "alerts in both families")
            assert attacks(found) == SEEN


async def test_an_attack_is_stopped_in_redirected_packets_and_nothing_passes_without_the_engine(
    netns: Namespaces, tmp_path: Path
) -> None:
    async with agent_process(netns, tmp_path, dict(os.environ), CONFIG, api()) as agent:
        pods = await connected(netns, agent)
        apply(agent.api, "redirect.yaml")
        await agent.until(lambda agent: len(marked(agent)) == 2, "packets are redirected")
        await agent.until(lambda agent: flows(agent, "in_port=ids1", "table=Classifier"), "and may come back")
        with netns.serving(pods["a"], SERVER):
            for six in (0, 1):
                assert not gets(netns, pods["b"], six, HARMLESS)
            with Inspector("suricata-ips", action="drop") as found:
                for six in (0, 1):
                    await agent.until(
                        partial(gets, netns, pods["b"], six, HARMLESS), "what is harmless passes"
                    )
                    assert not gets(netns, pods["b"], six, ATTACK)
                    assert gets(netns, pods["b"], six, HARMLESS)
                await agent.until(lambda _: len(attacks(found)) == 2, "drops in both families")
                assert attacks(found) == SEEN
                assert {one["alert"]["action"] for one in found.alerts()} == {"blocked"}
            for six in (0, 1):
                assert not gets(netns, pods["b"], six, HARMLESS)
        agent.api.drop(f"{CONTROLS}/ips")
        await agent.until(lambda agent: not {"ids0", "ids1"} & set(ports(agent)), "the ports go")
