"""Command lines are read as upstream's programs, which use cobra and pflag, read them."""

from __future__ import annotations

import importlib
import json
from typing import Any

import click
import pytest
from click.testing import CliRunner

from antrea.outside.log import klog
from antrea.outside.pflag import GoCommand


class Root(GoCommand, click.Group):
    """A group that is a command line of its own."""


def shown(**_: Any) -> None:
    context: click.Context | None = click.get_current_context()
    levels = []
    while context is not None:
        levels.append(context.params)
        context = context.parent
    click.echo(json.dumps(levels[::-1]))


def program() -> Root:
    pods = click.Command(
        "pods",
        params=[
            click.Argument(["name"], required=False),
            click.Option(["-o", "--output"], default="table"),
            click.Option(["--crds"], multiple=True),
            click.Option(["--insecure"], is_flag=True),
            click.Option(["-t", "--time"]),
        ],
        callback=shown,
    )
    bare = click.Command("bare", callback=shown)
    get = click.Group("get", commands=[pods, bare], callback=lambda: None)
    switches: list[click.Parameter] = [
        click.Option(["-k", "--kubeconfig"]),
        click.Option(["-t", "--timeout"]),
        click.Option(["-v", "--verbose"], is_flag=True),
    ]
    return Root("prog", commands=[get], params=switches, callback=lambda **_: None)


def ran(words: list[str]) -> Any:
    return CliRunner().invoke(program(), words, prog_name="prog")


TOP: dict[str, Any] = {"kubeconfig": None, "timeout": None, "verbose": False}
POD: dict[str, Any] = {"name": None, "output": "table", "crds": [], "insecure": False, "time": None}


@pytest.mark.parametrize(
    ("words", "top", "pod"),
    [
        ("get pods -k F --timeout 5s -v", {"kubeconfig": "F", "timeout": "5s", "verbose": True}, {}),
        ("-k F get -v pods", {"kubeconfig": "F", "verbose": True}, {}),
        ("get pods -o=json -k=F web", {"kubeconfig": "F"}, {"output": "json", "name": "web"}),
        ("get -o json pods web", {}, {"output": "json", "name": "web"}),
        ("get pods -ojson", {}, {"output": "json"}),
        ("get pods -vojson", {"verbose": True}, {"output": "json"}),
        ("get pods -o= ", {}, {"output": "="}),
        ("get pods -o -v", {}, {"output": "-v"}),
        ("get pods --output=a=b", {}, {"output": "a=b"}),
        ("get pods --output=", {}, {"output": ""}),
        ("get pods -o yaml -o json", {}, {"output": "json"}),
        ("get pods --crds a --crds=b", {}, {"crds": ["a", "b"]}),
        ("get pods --insecure=false -v=T", {"verbose": True}, {}),
        ("get pods --insecure --insecure=0", {}, {}),
        ("get pods -t 5s", {}, {"time": "5s"}),
        ("-t 5s get pods", {}, {"time": "5s"}),
        ("get pods -- -v", {}, {"name": "-v"}),
        ("get pods -", {}, {"name": "-"}),
        ("get -k get pods get", {"kubeconfig": "get"}, {"name": "get"}),
        ("get pods --help=false", {}, {}),
    ],
)
def test_options_are_read_wherever_they_stand(words: str, top: dict[str, Any], pod: dict[str, Any]) -> None:
    result = ran(words.split())
    assert result.exit_code == 0, result.output
    assert json.loads(result.output) == [TOP | top, {}, POD | pod]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("get pods --foo=1", "unknown flag: --foo"),
        ("get pods -vT", "unknown shorthand flag: 'T' in -T"),
        ("get pods --output", "flag needs an argument: --output"),
        ("get pods -vo", "flag needs an argument: 'o' in -o"),
        ("get pods -v=maybe", 'invalid argument "maybe" for "-v, --verbose" flag: strconv.ParseBool: parsing "maybe": invalid syntax'),
        ("get bare it", 'unknown command "it" for "prog get bare"'),
        ("get --foo=1", "unknown flag: --foo"),
    ],
)  # fmt: skip
def test_a_wrong_line_ends_in_pflags_words(words: str, error: str) -> None:
    result = ran(words.split())
    assert (result.exit_code, result.output) == (1, f"Error: {error}\n")


@pytest.mark.parametrize("words", ["", "-v", "-k F", "--help"])
def test_a_group_without_a_command_shows_its_help(words: str) -> None:
    result = ran(words.split())
    assert (result.exit_code, result.output.splitlines()[0]) == (0, "Usage: prog [OPTIONS] COMMAND [ARGS]...")
    below = ran(["get", *words.split()])
    assert below.output.startswith("Usage: prog get "), below.output


def test_klogs_flags_are_read_as_gos() -> None:
    @click.command(cls=GoCommand)
    @click.option("--config")
    @klog.flags
    def main(config: str, log: klog.Options) -> None:
        click.echo(f"{config} {log.v} {log.logtostderr} {log.alsologtostderr}")

    for line in (
        "-v=2 --config=c --logtostderr=false --alsologtostderr",
        "--alsologtostderr -v 2 --config c --logtostderr=F",
    ):
        result = CliRunner().invoke(main, line.split())
        assert (result.exit_code, result.output) == (0, "c 2 False True\n")


@pytest.mark.parametrize("module", ["antrea.agent.main", "antrea.controller.main"])
def test_agent_and_controller_take_gos_spelling_of_a_verbosity(module: str) -> None:
    main: click.Command = importlib.import_module(module).main
    context = main.make_context(module, ["-v=2", "--config=c"])
    assert (context.params["v"], str(context.params["path"])) == (2, "c")
