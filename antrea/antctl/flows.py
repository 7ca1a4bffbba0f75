"""`antctl get flows`: flow records from the flow aggregator's store; from a workstation by the aggregator's own antctl."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from antrea.antctl.failure import Failure
from antrea.antctl.group import HELP, output_option
from antrea.antctl.mode import FLOW_AGGREGATOR
from antrea.antctl.output import echo, render
from antrea.antctl.pod_exec import run_in_pod
from antrea.antctl.request import ask
from antrea.apis.shown import one_word
from antrea.decoding import guarded
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.antctl.main import Target
    from antrea.antctl.request import Server
    from antrea.features.framework.command import Column

NAMESPACE: Final = "flow-aggregator"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
OPTIONS: Final = {
    "since": "how long ago, such as 15m, or since a time such as 2027-01-31T12:00:00Z; default 1h, at most 744h",
    "until": "up to so long ago, or to a time",
    "namespace": "with an end in this Namespace",
    "pod": "with this Pod at an end: its name, or Namespace/name",
    "srcip": "with this source address",
    "dstip": "with this destination address",
    "port": "with this destination port, or port of a Service",
    "protocol": "tcp, udp, sctp, icmp, icmpv6 or a number",
    "action": "for which a rule had this action: allow, drop, reject, or denied, which is drop and reject",
    "policy": "with this policy: its name, or Namespace/name",
    "egress": "that left by this Egress",
    "limit": "at most so many records, the newest; default 100, at most 1000",
}
ACTIONS: Final = {1: "Allow", 2: "Drop", 3: "Reject"}
PROTOCOLS: Final = {1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6", 132: "SCTP"}
SECONDS: Final = 30.0
TEXT: Final = """Print flow records that the flow aggregator keeps in its store or in ClickHouse, the newest first.

Each connection has a record every activeFlowRecordTimeout. An end that is not a Pod is shown by its address.

\b
Examples:
  antctl get flows --since 15m --namespace shop --action denied
  antctl get flows --pod shop/web-0 --port 443 -o json"""


def command() -> click.Command:
    """The command `get flows`."""
    flags = [
        click.Option([f"--{name}", *(["-n"] if name == "namespace" else [])], help=text)
        for name, text in OPTIONS.items()
    ]
    return click.Command(
        "flows",
        context_settings=HELP,
        params=[*flags, output_option()],
        callback=_callback,
        short_help="Print flow records that the flow aggregator keeps",
        help=TEXT,
    )


def _callback(output: str, **given: str | None) -> None:
    target: Target = click.get_current_context().obj
    options = {name: text for name, text in given.items() if text}
    is_local = target.mode is FLOW_AGGREGATOR
    answer = ask(target.find(), "/flows", options) if is_local else from_pod(target.find(), "flows", options)
    if output != "table":
        echo(render(answer, output, COLUMNS, ordered=False), nl=False)
        return
    echo(render(answer["rows"], output, COLUMNS, ordered=False), nl=False)
    if answer["truncated"]:
        echo("There are older records: --limit and --until show more.", err=True)


def from_pod(kubernetes: Server, command: str, options: Mapping[str, str]) -> Any:
    """The answer of `antctl get COMMAND` in the aggregator's Pod, which takes the right to run commands there. Raises Failure."""
    items = ask(kubernetes, PODS, {"labelSelector": "app=flow-aggregator"})["items"]
    pods = [item["metadata"]["name"] for item in items if item.get("status", {}).get("phase") == "Running"]
    if not pods:
        raise Failure(
            f"no flow aggregator runs in Namespace {NAMESPACE}: install the chart with flowVisibility.enable=true"
        )
    arguments = [word for name, text in options.items() for word in (f"--{name}", text)]
    done = run_in_pod(
        kubernetes, f"{NAMESPACE}/{min(pods)}", ("antctl", "get", command, *arguments, "-o", "json"),
        container="flow-aggregator", seconds=SECONDS,
    )  # fmt: skip
    if done.code:
        raise Failure(
            done.stderr.strip().removeprefix("Error: ") or f"antctl in Pod {min(pods)}: exit code {done.code}"
        )
    try:
        return guarded(f"answer of antctl in Pod {min(pods)}", json.loads, done.stdout)
    except Invalid as error:
        raise Failure(str(error)) from error


def _end(end: str) -> Column:
    def cell(row: dict[str, Any]) -> str:
        namespace, name = row[f"{end}PodNamespace"], row[f"{end}PodName"]
        return one_word(f"{namespace}/{name}" if name else row[f"{end}IP"])

    return ("SOURCE" if end == "source" else "DESTINATION", cell)


def _policy(way: str) -> Column:
    def cell(row: dict[str, Any]) -> str:
        action = ACTIONS.get(row[f"{way}NetworkPolicyRuleAction"], "")
        namespace, name = row[f"{way}NetworkPolicyNamespace"], row[f"{way}NetworkPolicyName"]
        return one_word(
            ":".join(part for part in ("/".join(part for part in (namespace, name) if part), action) if part)
        )

    return (way.upper(), cell)


def _time(row: dict[str, Any]) -> str:
    return datetime.fromtimestamp(row["flowEndSeconds"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


COLUMNS: tuple[Column, ...] = (
    ("LAST-PACKET", _time),
    _end("source"),
    _end("destination"),
    ("PORT", lambda row: str(row["destinationTransportPort"])),
    ("PROTO", lambda row: PROTOCOLS.get(row["protocolIdentifier"], str(row["protocolIdentifier"]))),
    ("SERVICE", lambda row: one_word(row["destinationServicePortName"])),
    ("BYTES", lambda row: str(row["octetTotalCount"] + row["reverseOctetTotalCount"])),
    ("DIRECTION", lambda row: "known" if row.get("biflowDirection", 1) else "unknown"),
    _policy("egress"),
    _policy("ingress"),
)
