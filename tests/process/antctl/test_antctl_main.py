"""The command line against a real server of the agent's API on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from agent_context import agent_parts
from click.testing import CliRunner

from antrea import VERSION
from antrea.agent.api.certificate import certificate
from antrea.agent.api.server import AgentApi
from antrea.agent.api.view import AgentView
from antrea.antctl import mode
from antrea.antctl.commands import DATA_COMMANDS, NOT_BUILT
from antrea.antctl.main import antctl
from antrea.config.agent import AgentConfig
from antrea.config.effect import InEffect
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.facts.ovs import PodInterface
from antrea.features.framework.config_validation import accept_agent
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from click.testing import Result

GOLDEN = Path(__file__).parents[2] / "golden" / "antctl"


class Dump:
    """Stands where ovs-ofctl stands."""

    async def lines(self, command: str, *_: str) -> AsyncIterator[str]:
        if command == "dump-groups":
            raise Unavailable("OVS")
        yield "cookie=0x1, table=0, priority=0 actions=drop"


REFUSED: list[str] = []
"""Why the agent refuses a configuration."""


@pytest.fixture
def refused() -> Iterator[list[str]]:
    yield REFUSED
    REFUSED.clear()


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    facts = Facts()
    facts.put(PodInterface("web-0-1a2b3c", "c" * 64, "shop", "web-0", "aa:00", ("10.1.0.4",), 9, "uuid1"))
    config = AgentConfig(api_port=0)
    view = AgentView(
        lambda: InEffect("", config, accept_agent(config), rejected="".join(REFUSED)),
        facts,
        Dump(),
        {"PipelineRootClassifier": 0},
        parts=agent_parts(facts),
    )
    server = AgentApi(view, certificate(), None, token_file=tmp_path / "token")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(server.run())
        await server.serves.wait()
        yield f"127.0.0.1:{server.port}"
        running.cancel()


async def run(address: str, tmp_path: Path, *arguments: str, program: mode.Mode = mode.AGENT) -> Result:
    options = ["-s", address, "--token-file", str(tmp_path / "token"), "-t", "10s"]
    return await asyncio.to_thread(
        CliRunner().invoke, antctl(program), [*options, *arguments], prog_name="antctl"
    )


async def test_antctl_takes_global_options_after_the_command(address: str, tmp_path: Path) -> None:
    words = ["get", "podinterface", "-o=json", "-n=shop", f"-s={address}", "--timeout", "5s", "-v"]
    line = [*words, "--token-file", str(tmp_path / "token")]
    result = await asyncio.to_thread(CliRunner().invoke, antctl(mode.AGENT), line, prog_name="antctl")
    assert [row["name"] for row in json.loads(result.stdout)] == ["web-0"]
    assert result.stderr == f"GET https://{address}/podinterfaces?namespace=shop\n"


async def test_antctl_prints_pod_interfaces_of_the_agent(address: str, tmp_path: Path) -> None:
    everything = await run(address, tmp_path, "get", "podinterface")
    assert everything.output == (
        "NAMESPACE NAME  INTERFACE-NAME IP       MAC   PORT-UUID OF-PORT CONTAINER-ID\n"
        "shop      web-0 web-0-1a2b3c   10.1.0.4 aa:00 uuid1     9       ccccccccccc \n"
    )
    one = await run(address, tmp_path, "get", "pi", "web-0", "-n", "shop", "-o", "json")
    assert [row["ofPort"] for row in json.loads(one.output)] == [9]
    none = await run(address, tmp_path, "get", "podinterfaces", "-n", "other")
    assert (none.exit_code, none.output) == (0, "\n")


async def test_antctl_prints_flows_table_names_and_gates(address: str, tmp_path: Path) -> None:
    flows = await run(address, tmp_path, "get", "of")
    assert flows.output == "\ncookie=0x1, table=PipelineRootClassifier, priority=0 actions=drop\n"
    names = await run(address, tmp_path, "get", "ovsflows", "--table-names-only")
    assert names.output == "\nPipelineRootClassifier\n"
    gates = (await run(address, tmp_path, "get", "featuregates")).output.splitlines()
    assert gates[:3] == [
        "Antrea Agent Feature Gates",
        "FEATUREGATE                       STATUS       VERSION",
        "AntreaIPAM                        Disabled     ALPHA",
    ]
    assert not any("Controller" in line for line in gates)
    rows = json.loads((await run(address, tmp_path, "get", "featuregates", "-o", "json")).output)
    assert rows[0] == {"component": "agent", "name": "AntreaIPAM", "status": "Disabled", "version": "ALPHA"}
    assert len(rows) == len(gates) - 2
    wrong = await run(address, tmp_path, "get", "featuregates", "-o", "xml")
    assert (wrong.exit_code, wrong.stderr) == (1, "Error: unsupported format type: xml\n")


async def test_antctl_says_why_gates_that_are_asked_for_are_not_in_effect(
    address: str, tmp_path: Path, refused: list[str]
) -> None:
    before = await run(address, tmp_path, "get", "featuregates")
    refused.append('featureGates.X\u00e9: "is" no \\ gate\nof ours')
    after = await run(address, tmp_path, "get", "featuregates")
    assert (before.stderr, after.stdout) == ("", before.stdout)
    assert after.stderr == (
        "Warning: antrea-agent.conf: rejected, the last good configuration stays in effect: "
        'featureGates.X\\xe9: "is" no \\ gate of ours\n'
    )


async def test_antctl_shows_versions_and_log_level(address: str, tmp_path: Path) -> None:
    version = await run(address, tmp_path, "version")
    assert [line.split(": ")[0] for line in version.output.splitlines()] == ["agentVersion", "antctlVersion"]
    before = klog.verbosity()
    try:
        assert (await run(address, tmp_path, "log-level", "3")).output == ""
        assert (await run(address, tmp_path, "log-level")).output == "3\n"
        wrong = await run(address, tmp_path, "log-level", "x")
        assert (wrong.exit_code, wrong.stderr) == (
            1,
            "Error: request to server failed: Bad Request: log level must be a number from 0 to 10\n",
        )
    finally:
        klog.set_verbosity(before)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("get", "podinterface", "x", "-n", "a"), "request to server failed: Not Found: Pod a/x has no interface on this Node"),
        (("get", "ovsflows", "-p", "x"), "request to server failed: Bad Request: namespace must be provided"),
        (("get", "ovsflows", "-G", "all"), "request to server failed: OVS"),
        (("get", "podinterface", "-o", "xml"), "unsupported format type: xml"),
        (("get", "memberlist"), "request to server failed: memberlist is not enabled"),
        (("get", "podmulticaststats", "-o", "json", "--anything"), "antctl get podmulticaststats is not built yet"),
        (("get", "bgppeers"), "request to server failed: bgp is not enabled"),
    ],
)  # fmt: skip
async def test_antctl_failures_are_one_line_and_exit_1(
    address: str, tmp_path: Path, arguments: tuple[str, ...], error: str
) -> None:
    result = await run(address, tmp_path, *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: {error}\n")


async def test_antctl_a_wrong_token_or_no_server_is_one_line(address: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("wrong")
    assert (await run(address, tmp_path, "get", "podinterface")).stderr == (
        "Error: request to server failed: Unauthorized\n"
    )
    away = await run("127.0.0.1:9", tmp_path, "get", "podinterface")
    assert "https://127.0.0.1:9/podinterfaces: " in away.stderr
    (tmp_path / "token").unlink()
    assert "No such file or directory" in (await run(address, tmp_path, "get", "podinterface")).stderr
    version = await run(address, tmp_path, "version")
    assert (version.exit_code, version.stdout.split(":")[0]) == (1, "antctlVersion")


def test_antctl_an_unknown_command_is_answered_in_upstreams_words() -> None:
    result = CliRunner().invoke(antctl(mode.REMOTE), ["frobnicate"], prog_name="antctl")
    recorded = [
        line for line in (GOLDEN / "unknown.txt").read_text().splitlines() if not line.startswith("#")
    ]
    assert (result.exit_code, result.stderr.splitlines()) == (1, recorded)


@pytest.mark.parametrize(
    ("program", "words", "where"),
    [
        (mode.REMOTE, "get podinterface", "Pods of the agent have it: kubectl exec -n kube-system ds/antrea-agent -c antrea-agent -- antctl get podinterface"),
        (mode.REMOTE, "get of", "Pods of the agent have it: kubectl exec -n kube-system ds/antrea-agent -c antrea-agent -- antctl get of"),
        (mode.REMOTE, "log-level", "Pods of the agent have it: kubectl exec -n kube-system ds/antrea-agent -c antrea-agent -- antctl log-level"),
        (mode.AGENT, "get controllerinfo", "Pods of the controller have it: kubectl exec -n kube-system deploy/antrea-controller -c antrea-controller -- antctl get controllerinfo"),
        (mode.AGENT, "explain", "It needs a kubeconfig: run 'antctl explain' on a workstation."),
    ],
)  # fmt: skip
def test_antctl_says_where_a_command_is_that_this_program_does_not_have(
    program: mode.Mode, words: str, where: str
) -> None:
    result = CliRunner().invoke(antctl(program), words.split(), prog_name="antctl")
    *path, last = ["antctl", *words.split()]
    assert (result.exit_code, result.stderr.splitlines()) == (
        1,
        [f'Error: unknown command "{last}" for "{" ".join(path)}"', where, f"Run '{' '.join(path)} --help' for usage."],
    )  # fmt: skip


@pytest.mark.parametrize("words", ["", "get", "query", "check", "upgrade"])
def test_antctl_without_a_command_shows_the_help_once(words: str) -> None:
    bare = CliRunner().invoke(antctl(mode.REMOTE), words.split(), prog_name="antctl")
    helped = CliRunner().invoke(antctl(mode.REMOTE), [*words.split(), "--help"], prog_name="antctl")
    assert (bare.exit_code, bare.stdout, bare.stderr) == (0, helped.stdout, "")


@pytest.mark.parametrize(
    ("pod", "found"),
    [
        ("antrea-agent-abcde", mode.AGENT),
        ("antrea-controller-5d-x", mode.CONTROLLER),
        ("flow-aggregator-x", mode.FLOW_AGGREGATOR),
        ("other", mode.REMOTE),
        ("", mode.REMOTE),
    ],
)
def test_antctl_finds_its_mode_by_the_pods_name(pod: str, found: mode.Mode) -> None:
    assert mode.mode_of({"POD_NAME": pod}) == found


@pytest.mark.parametrize("program", [mode.AGENT, mode.CONTROLLER, mode.FLOW_AGGREGATOR, mode.REMOTE])
def test_antctl_lists_what_is_not_built_and_says_so(program: mode.Mode) -> None:
    for row in NOT_BUILT:
        if program.name not in row.modes and any(
            (row.group, row.name) == (built.group, built.name) for built in DATA_COMMANDS
        ):
            continue
        words = [word for word in (row.group, row.name) if word]
        result = CliRunner().invoke(antctl(program), words, prog_name="antctl")
        assert result.exit_code == 1
        expected = "is not built yet" if program.name in row.modes else "unknown command"
        assert expected in result.stderr


UPSTREAM = {
    mode.AGENT: (
        "completion help log-level packetcapture supportbundle trace-packet traceflow version",
        (
            "addressgroup agentinfo appliedtogroup bgppeers bgppolicy bgproutes featuregates fqdncache memberlist "
            "networkpolicy ovsflows podinterface podmulticaststats serviceexternalip"
        ),
    ),
    mode.CONTROLLER: (
        "completion help log-level packetcapture proxy query supportbundle traceflow version",
        "addressgroup appliedtogroup controllerinfo featuregates networkpolicy",
    ),
    mode.FLOW_AGGREGATOR: ("completion help log-level set version", "flowrecords recordmetrics"),
    mode.REMOTE: (
        "check completion help mc packetcapture proxy query supportbundle traceflow upgrade version",
        "addressgroup appliedtogroup controllerinfo featuregates networkpolicy",
    ),
}
"""Commands of antctl and of `antctl get` (upstream pkg/antctl/antctl.go, and its recorded --help)."""


def listed(program: mode.Mode, *words: str) -> set[str]:
    """Commands in a --help."""
    text = CliRunner().invoke(antctl(program), [*words, "--help"], prog_name="antctl").output
    lines = text.partition("Commands:\n")[2].splitlines()
    return {line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "}


@pytest.mark.parametrize("program", list(UPSTREAM), ids=lambda program: program.component + program.name)
def test_antctl_lists_every_command_of_upstream(program: mode.Mode) -> None:
    top, get = UPSTREAM[program]
    assert {*top.split(), "get"} - listed(program) == set()
    assert set(get.split()) - listed(program, "get") == set()
    if program is mode.REMOTE:
        assert listed(program, "check") == {"cluster", "installation"}
        assert listed(program, "upgrade") == {"api-storage"}


def test_antctl_help_shows_the_help_of_any_command() -> None:
    def output(*words: str) -> str:
        return CliRunner().invoke(antctl(mode.REMOTE), list(words), prog_name="antctl").output

    assert output("help") == output("--help")
    assert output("help", "get", "netpol") == output("get", "networkpolicy", "--help")
    assert output("help", "check", "cluster") == output("check", "cluster", "--help")
    assert output("help", "get", "frobnicate") == "Error: unknown help topic 'get frobnicate'\n"


def test_antctl_timeout_must_be_a_duration() -> None:
    result = CliRunner().invoke(antctl(mode.AGENT), ["-t", "10", "version"], prog_name="antctl")
    assert result.exit_code == 1
    assert 'invalid argument "10" for "-t, --timeout" flag' in result.stderr


def test_antctl_starts_without_what_only_a_request_needs() -> None:
    late = {"aiohttp", "asyncio", "msgspec", "yaml", "ssl", "http", "importlib.metadata"}
    code = f"import sys, antrea.antctl.main; print(*{late} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_antctl_asks_the_program_of_its_pod_without_what_only_kube_apiserver_needs(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x")
    late = {"aiohttp", "asyncio", "msgspec", "yaml", "cryptography", "zipfile"}
    words = ["antctl", "-s", "127.0.0.1:9", "--token-file", str(tmp_path / "token"), "version"]
    code = (
        "import atexit, sys; from antrea.antctl.main import main\n"
        f"atexit.register(lambda: print(*{late} & set(sys.modules)))\n"
        f"sys.argv = {words}; main()"
    )
    environment = {**os.environ, "POD_NAME": "antrea-agent-x"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout.splitlines() == [f"antctlVersion: v{VERSION}", ""]
    assert "https://127.0.0.1:9/version: " in done.stderr


@pytest.mark.parametrize(
    "words", ["--no-such", "get podinterface --no-such", "get podinterface -o", "get ovsflows -T"]
)
def test_a_wrong_command_line_ends_with_upstreams_exit_code(words: str) -> None:
    result = CliRunner().invoke(antctl(mode.AGENT), words.split(), prog_name="antctl")
    assert (result.exit_code, "Error: " in result.stderr) == (1, True), result.output
