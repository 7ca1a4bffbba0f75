"""`antctl get flowmap`: sums of the records between each two workloads, Services, Namespaces or addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from antrea.antctl import flows
from antrea.antctl.group import HELP, output_option
from antrea.antctl.mode import FLOW_AGGREGATOR
from antrea.antctl.output import echo, render
from antrea.antctl.request import ask
from antrea.apis.shown import one_word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.antctl.main import Target
    from antrea.features.framework.command import Column

KINDS: Final = ("namespace", "workload", "service", "endpoint")
TEXT: Final = """Print who talks to whom, as the flow aggregator has seen it: a line for both ends, port and protocol.

A workload is the name of a Pod without what Deployments, DaemonSets, Jobs and StatefulSets add to theirs.

\b
Examples:
  antctl get flowmap --since 15m --namespace shop
  antctl get flowmap --by endpoint -o json > seen.json"""


def command() -> click.Command:
    """The command `get flowmap`."""
    flags = [
        click.Option([f"--{name}", *(["-n"] if name == "namespace" else [])], help=text)
        for name, text in flows.OPTIONS.items()
        if name != "limit"
    ]
    by = click.Option(
        ["--by"],
        default="workload",
        show_default=True,
        type=click.Choice(KINDS),
        help="kind of the ends; endpoint: workloads, and the address of an end that is not a Pod",
    )
    return click.Command(
        "flowmap",
        context_settings=HELP,
        params=[*flags, by, output_option()],
        callback=_callback,
        short_help="Print who talks to whom, as the flow aggregator has seen it",
        help=TEXT,
    )


def read(target: Target, options: Mapping[str, str]) -> Any:
    """The answer of /flows/map, in the aggregator's Pod or from a workstation. Raises Failure."""
    if target.mode is FLOW_AGGREGATOR:
        return ask(target.find(), "/flows/map", options)
    return flows.from_pod(target.find(), "flowmap", options)


def _callback(output: str, **given: str | None) -> None:
    target: Target = click.get_current_context().obj
    answer = read(target, {name: text for name, text in given.items() if text})
    rows = answer if output != "table" else answer["links"]
    echo(render(rows, output, COLUMNS, ordered=False), nl=False)
    if output == "table" and answer["truncated"]:
        echo("There are more: --since, --namespace and --pod ask for fewer.", err=True)


def _end(key: str) -> Column:
    return (key.upper(), lambda row: one_word(row[key].partition("/")[2] or row[key]))


COLUMNS: tuple[Column, ...] = (
    _end("source"),
    _end("target"),
    ("PORT", lambda row: str(row["port"])),
    ("PROTO", lambda row: flows.PROTOCOLS.get(row["protocol"], str(row["protocol"]))),
    ("BYTES", lambda row: str(row["bytes"])),
    ("CONNECTIONS", lambda row: str(row["connections"])),
    ("DENIED", lambda row: str(row["denied"])),
    ("DIRECTION-UNKNOWN", lambda row: str(row.get("unknown", 0))),
)
