"""Tables, JSON, YAML and raw output, compared with what upstream's antctl printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from antrea.antctl.commands import DATA_COMMANDS
from antrea.antctl.failure import Failure
from antrea.antctl.gates import blocks
from antrea.antctl.output import echo, render, yaml_of
from antrea.antctl.yaml_text import text_of
from antrea.features.framework.command import listed, table

GOLDEN = Path(__file__).parents[2] / "golden" / "antctl"
COLUMNS = {row.name: row.columns for row in DATA_COMMANDS}


def recorded(name: str) -> str:
    return "".join(
        line for line in (GOLDEN / name).read_text().splitlines(keepends=True) if not line.startswith("#")
    )


def test_antctl_feature_gates_have_upstreams_layout() -> None:
    text = recorded("get-featuregates.table")
    rows, component = [], "agent"
    for line in text.splitlines():
        component = "controller" if "Controller" in line else component
        cells = line.split()
        if len(cells) == 3 and cells[0] != "FEATUREGATE":
            rows.append(
                {"component": component, **dict(zip(("name", "status", "version"), cells, strict=True))}
            )
    assert len(rows) == 42
    assert blocks(rows) == text
    windows = blocks(
        [{"component": "agent-windows", "name": "Egress", "status": "Disabled", "version": "BETA"}]
    )
    assert windows.startswith(
        "Antrea Agent Feature Gates (Windows)\nFEATUREGATE     STATUS       VERSION\nEgress "
    )


def test_antctl_a_table_has_upstreams_layout() -> None:
    text = recorded("get-controllerinfo.table")
    header, row = (line.split() for line in text.splitlines())
    columns = tuple((name, lambda cells, name=name: cells[name]) for name in header)
    assert table([dict(zip(header, row, strict=True))], columns, ordered=True) == text


def test_antctl_version_has_upstreams_layout() -> None:
    version = {"controllerVersion": "v2.3.2", "antctlVersion": "v2.3.2"}
    assert render(version, "json", (), ordered=False) == recorded("version.json")
    for form in ("yaml", "table"):
        assert render(version, form, (), ordered=False) == recorded("version.yaml")


def test_antctl_pod_interfaces_are_sorted_cut_and_padded() -> None:
    rows = [
        {"name": "web-0", "podNamespace": "shop", "interfaceName": "web-0-1a2b3c", "ips": ["10.1.0.4", "fd00::4"],
         "mac": "aa:bb", "portUUID": "u1", "ofPort": 9, "containerID": "e59c55a1b2c3d4"},
        {"name": "db", "podNamespace": "shop", "interfaceName": "db-1", "mac": "aa:cc", "ofPort": 10, "containerID": "short"},
    ]  # fmt: skip
    assert render(rows, "table", COLUMNS["podinterface"], ordered=True) == (
        "NAMESPACE NAME  INTERFACE-NAME IP                MAC   PORT-UUID OF-PORT CONTAINER-ID\n"
        "shop      db    db-1           <NONE>            aa:cc <NONE>    10      short       \n"
        "shop      web-0 web-0-1a2b3c   10.1.0.4, fd00::4 aa:bb u1        9       e59c55a1b2c \n"
    )
    assert render([], "table", COLUMNS["podinterface"], ordered=True) == "\n"


def test_antctl_flows_are_one_empty_line_and_then_one_line_each_in_ovs_order() -> None:
    rows = [{"flow": "table=Output actions=drop"}, {"flow": "table=Classifier"}]
    assert render(rows, "table", COLUMNS["ovsflows"], ordered=False) == (
        "\ntable=Output actions=drop\ntable=Classifier\n"
    )


def test_antctl_agentinfo_shows_health_and_counts() -> None:
    info = {"podRef": {"namespace": "kube-system", "name": "antrea-agent-x"}, "nodeRef": {"name": "n1"},
            "nodeSubnets": ["10.1.0.0/24"], "localPodNum": 7, "agentConditions": [{"type": "AgentHealthy", "status": "True"}]}  # fmt: skip
    lines = render(info, "table", COLUMNS["agentinfo"], ordered=True).splitlines()
    assert lines[1].split() == [
        "kube-system/antrea-agent-x",
        "n1",
        "Healthy",
        "10.1.0.0/24",
        "0",
        "0",
        "0",
        "7",
    ]
    status = dict(COLUMNS["agentinfo"])["STATUS"]
    assert status({"agentConditions": [{"status": "Unknown"}]}) == "Unknown"
    assert status({"agentConditions": [{"status": "Unknown"}, {"status": "False"}]}) == "Unhealthy"
    assert status({}) == ""


def test_antctl_json_yaml_and_raw_print_the_same_rows() -> None:
    rows = [{"name": "b", "ips": ["10.0.0.1"], "ofPort": 3, "on": True, "none": None}]
    assert json.loads(render(rows, "json", (), ordered=True)) == rows
    assert render(rows, "json", (), ordered=True).startswith('[\n  {\n    "name": "b",\n')
    assert render(rows, "yaml", (), ordered=True) == (
        '- ips:\n  - 10.0.0.1\n  name: b\n  none: null\n  ofPort: 3\n  "on": true\n'
    )
    assert render(rows, "raw", (), ordered=True) == "[{b [10.0.0.1] 3 true <nil>}]\n"
    with pytest.raises(Failure, match="unsupported format type: xml"):
        render(rows, "xml", (), ordered=True)


def test_antctl_a_long_list_in_a_cell_says_how_many_more_there_are() -> None:
    assert listed(["b", "a"]) == "a,b"
    assert listed([f"10.0.0.{n:03d}" for n in range(9)]) == "10.0.0.000,10.0.0.001,10.0.0.002 + 6 more..."
    assert listed(["x" * 60, "y"]) == f"{'x' * 60} + 1 more..."


@pytest.mark.parametrize(
    "text", ["v1", "v0.1.0", "v2.8.0-dev.1+x", "controllerVersion", "v1:", "yes", "1.0", "", "v1 x"]
)
def test_antctl_yaml_of_strings_is_what_the_library_writes(text: str) -> None:
    for answer in ({"agentVersion": text}, {text: "v1", "antctlVersion": "v2"}):
        assert yaml_of(answer) == text_of(answer)


HOSTILE = "a\x1b]0;b\x07\x9b2J\u202ec\r\nd\ud800"
"""As a tenant's DNS server, request or annotation may have it: it would set a title, clear the screen, or turn text around."""


@pytest.mark.parametrize("form", ["json", "yaml", "table", "raw"])
def test_antctl_prints_nothing_that_moves_a_terminal_whoever_wrote_it(form: str) -> None:
    columns = (("NAME", lambda row: str(row["name"])), ("OTHER", lambda row: "x"))
    text = render([{"name": HOSTILE}], form, columns, ordered=True)
    # YAML keeps format characters, as that of Kubernetes does
    assert text.replace("\n", "").replace("\u202e", "" if form == "yaml" else "\u202e").isprintable()
    assert text.encode()
    if form == "json":
        assert json.loads(text) == [{"name": HOSTILE}]
    if form == "table":
        assert len(text.splitlines()) == 2


def test_antctl_an_error_that_quotes_others_moves_no_terminal_and_keeps_its_lines() -> None:
    message = Failure(f"first line\nsecond \\ {HOSTILE}").format_message()
    assert message.replace("\n", "").isprintable()
    assert message.splitlines()[:1] == ["first line"]
    assert Failure("a \\ b").format_message() == "a \\ b"


SOURCE = Path(__file__).parents[3] / "antrea"
PRINTS = {
    "antctl/output.py",
    "antctl/completion.py",
    "antctl/kubectl_plugin.py",
    "antctl/check/report.py",
    "antctl/kube_proxy/node.py",
}
"""Modules that print by themselves: what escapes, a program that prints JSON, and completions."""


@pytest.mark.parametrize("err", [False, True])
def test_antctl_prints_nothing_that_moves_a_terminal(capsys: pytest.CaptureFixture[str], err: bool) -> None:
    """Versions, findings and warnings quote what agents and tenants write."""
    echo("v1\x1b]0;title\x07\nv2\x9b2J", err=err)
    captured = capsys.readouterr()
    assert (captured.err if err else captured.out) == "v1\\x1b]0;title\\x07\nv2\\x9b2J\n"


def test_antctl_prints_in_one_place() -> None:
    modules = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}
    texts = {name: path.read_text() for name, path in modules.items() if "antctl" in name}
    found = {name for name, text in texts.items() if "click.echo" in text or "click.secho" in text}
    assert found == PRINTS
