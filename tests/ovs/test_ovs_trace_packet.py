"""`antctl trace-packet` and other commands of the agent, from the command line to a real switch and back."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from agent_context import agent_context
from click.testing import CliRunner

from antrea.agent.api.certificate import certificate
from antrea.agent.api.server import AgentApi
from antrea.agent.api.view import AgentView
from antrea.antctl import mode
from antrea.antctl.main import antctl
from antrea.apis.agent_api import FqdnAnswer
from antrea.config.agent import AgentConfig
from antrea.config.effect import InEffect
from antrea.engine import Facts
from antrea.facts.node import ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.framework.config_validation import accept_agent
from antrea.features.network_policy.agent_part.part import PolicyPart
from antrea.features.network_policy.agent_part.policies import fqdn_cache
from antrea.outside.vswitch.ofctl import Ofctl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from click.testing import Result
    from ovs_bridge import OvsBridge

    from antrea.features.framework.agent_part import Route

    Run = Callable[..., Any]

FLOWS = (
    "table=0,priority=200,ip actions=goto_table:1",
    "table=1,priority=190,ip,in_port=7 actions=ct(table=2,zone=65520)",
    "table=2,priority=200,ip,nw_dst=10.10.0.8 actions=output:8",
)
TRACED = [
    " 0. PipelineRootClassifier: ip, priority 200",
    "    goto_table:Classifier",
    " 1. Classifier: ip,in_port=7, priority 190",
    "    ct(table=Output,zone=65520)",
    " 2. Output: ip,nw_dst=10.10.0.8, priority 200",
    "    output:8",
]
FQDNS = (FqdnAnswer("antrea.io", "10.1.2.3", "2026-01-02T15:04:05Z"),)


class Names(PolicyPart):
    """A policy has rules on names."""

    def routes(self) -> dict[str, Route]:
        return {**super().routes(), "/fqdncache": lambda query: fqdn_cache(FQDNS, query)}


@pytest.fixture
async def run(ovs: OvsBridge, tmp_path: Path) -> AsyncIterator[Run]:
    """antctl in the agent's Pod."""
    ovs.clear()
    for name, number in (("pod-a", 7), ("pod-b", 8), ("antrea-gw0", 2)):
        if name not in ovs.vsctl("list-ports", "br-int").split():
            ovs.add_port(name, number)
    ovs.add_flows(FLOWS)
    facts = Facts()
    for row in (
        ThisNode("n1", ("10.10.0.0/24",)),
        OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:01"),
        PodInterface("pod-a", "a" * 64, "shop", "a", "0a:00:00:00:00:07", ("10.10.0.7",), 7, "u1"),
        PodInterface("pod-b", "b" * 64, "shop", "b", "0a:00:00:00:00:08", ("10.10.0.8",), 8, "u2"),
    ):
        facts.put(row)
    config = AgentConfig(api_port=0, ovs_run_dir=str(ovs.process.directory))
    effect = InEffect("", config, accept_agent(config))
    tables = {"PipelineRootClassifier": 0, "Classifier": 1, "Output": 2}
    ofctl = Ofctl(ovs.process.directory / "br-int.mgmt")
    view = AgentView(lambda: effect, facts, ofctl, tables, parts=[Names(agent_context(facts, config))])
    server = AgentApi(view, certificate(), None, token_file=tmp_path / "token")

    async def ask(*words: str) -> Result:
        options = ["-s", f"127.0.0.1:{server.port}", "--token-file", str(tmp_path / "token"), "-t", "20s"]
        invoke = CliRunner().invoke
        return await asyncio.to_thread(invoke, antctl(mode.AGENT), [*options, *words], prog_name="antctl")

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(server.run())
        await server.serves.wait()
        yield ask
        running.cancel()


@pytest.mark.parametrize("form", ["yaml", "json", "raw", "table"])
async def test_trace_packet_prints_what_ovs_says_with_names_of_tables_in_every_format(
    run: Run, form: str
) -> None:
    found = await run("trace-packet", "-S", "shop/a", "-D", "shop/b", "-f", "tcp, tcp_dst=80", "-o", form)
    assert (found.exit_code, found.stderr) == (0, "")
    lines = found.stdout.splitlines()
    assert [line for line in lines if line in TRACED] == TRACED
    assert lines[0].startswith("Flow: tcp,in_port=7,")
    assert lines[-1].startswith("Datapath actions: ")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("-S", "shop/c"), "Service Unavailable: kube-apiserver is needed to look up source shop/c, and this agent has no connection to it"),
        (("-S", "shop//c"), "Bad Request: invalid source format: 'shop//c' is not <Namespace>/<name>"),
        (("-p", "tap0"), "Not Found: input port not found: tap0 is neither a port of the bridge nor a Pod of this Node"),
        (("-S", "shop/a", "-F", "6"), "Not Found: source shop/a has no IPv6 address"),
        (("-f", "tcp --ct-next trk"), "Bad Request: invalid flow format: 'tcp --ct-next trk' is neither a protocol nor <field>=<value>"),
        (("-S", "shop/a", "-f", "tcp,ttl=x"), "Bad Request: OVS rejects the packet: Bad openflow flow syntax: "),
    ],
)  # fmt: skip
async def test_trace_packet_fails_with_one_line_that_names_the_option(
    run: Run, words: tuple[str, ...], error: str
) -> None:
    found = await run("trace-packet", *words)
    assert (found.exit_code, found.stdout) == (1, "")
    head, _, rest = found.stderr.partition("request to server failed: ")
    assert head == "Error: "
    assert rest.startswith(error.removeprefix("Service Unavailable: "))
    assert rest.count("\n") == 1


async def test_agent_commands_about_policies_show_that_none_was_sent(run: Run) -> None:
    for kind in ("networkpolicy", "netpol", "appliedtogroups", "ag"):
        found = await run("get", kind)
        assert (found.exit_code, found.output) == (0, "\n")
        assert json.loads((await run("get", kind, "-o", "json")).output) == []
    assert (await run("get", "netpol", "-p", "shop/a", "-T", "acnp")).output == "\n"
    one = await run("get", "atg", "none")
    assert (one.exit_code, one.stderr) == (
        1,
        "Error: request to server failed: Not Found: AppliedToGroup none was not sent to this agent\n",
    )
    wrong = await run("get", "networkpolicy", "-T", "XYZ")
    assert wrong.stderr == (
        "Error: request to server failed: Bad Request: "
        "unknown policy type. Valid types are [ACNP ANNP ANP BANP K8SCNP K8SNP]\n"
    )


async def test_agent_commands_print_the_fqdn_cache_with_times_as_go_prints_them(run: Run) -> None:
    assert (await run("get", "fqdncache", "-d", "*.io")).output == (
        "FQDN      ADDRESS  EXPIRATION TIME              \nantrea.io 10.1.2.3 2026-01-02 15:04:05 +0000 UTC\n"
    )
    assert (await run("get", "fqdncache", "--domain", "none")).output == "\n"


@pytest.mark.parametrize(
    ("words", "flows"),
    [
        ((), ["PipelineRootClassifier", "Classifier", "Output"]),
        (("-T", "Classifier,2"), ["Classifier", "Output"]),
        (("-p", "a", "-n", "shop"), ["Classifier"]),
        (("-p", "b", "-n", "shop"), ["Output"]),
    ],
)
async def test_agent_commands_print_flows_of_tables_and_pods(
    run: Run, words: tuple[str, ...], flows: list[str]
) -> None:
    head, *rows = (await run("get", "ovsflows", *words)).output.splitlines()
    assert (head, [row.split("table=")[1].split(",")[0] for row in rows]) == ("", flows)
