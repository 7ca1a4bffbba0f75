"""The group `policy`: `recommend` makes NetworkPolicies of the connections that the flow aggregator has seen."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any, Final

import click

from antrea.antctl.failure import Failure
from antrea.antctl.group import HELP, Group
from antrea.antctl.mode import REMOTE
from antrea.antctl.output import render
from antrea.antctl.yaml_text import text_of
from antrea.apis.shown import one_line, one_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.antctl.main import Target
    from antrea.antctl.output import Column
    from antrea.antctl.policy.recommendation import Link

SHORT: Final = "Recommend network policies"
TEXT: Final = """Print the Kubernetes NetworkPolicies that allow the connections that were seen in a Namespace, and no others.

The flow aggregator keeps what was seen (flowVisibility.enable in the chart). Each policy names the connections that it
comes from. What policies denied is not allowed, and named on standard error. Look at what is printed before you apply
it: a connection that happens once a month may not have been seen.

\b
Examples:
  antctl policy recommend --namespace shop --since 24h > policies.yaml
  antctl policy recommend -n shop --flows seen.json -o table"""
MOST_SHOWN: Final = 20
"""Of what is left out, in lines."""
COLUMNS: tuple[Column, ...] = (
    ("NAME", lambda row: row["metadata"]["name"]),
    ("POD-SELECTOR", lambda row: _selector(row["spec"]["podSelector"])),
    ("INGRESS-RULES", lambda row: str(len(row["spec"].get("ingress", ())))),
    ("EGRESS-RULES", lambda row: str(len(row["spec"].get("egress", ())))),
)


def command() -> click.Command:
    """The group."""
    recommend = click.Command(
        "recommend",
        context_settings=HELP,
        params=[
            click.Option(["-n", "--namespace"], required=True, help="whose Pods are to be isolated"),
            click.Option(["--since"], default="1h", show_default=True, help="how long ago, such as 15m or 24h; at most 744h"),
            click.Option(
                ["--flows"], type=click.File("rb"),
                help="what was seen, as `antctl get flowmap --by endpoint -o json` prints it, instead of the flow aggregator",
            ),
            click.Option(["-o", "--output"], default="yaml", show_default=True, type=click.Choice(["yaml", "json", "table"]), help="output format"),
        ],
        callback=_recommend,
        short_help="Recommend NetworkPolicies for a Namespace",
        help=TEXT,
    )  # fmt: skip
    return Group("policy", [recommend], context_settings=HELP, help=SHORT)


def _recommend(namespace: str, since: str, flows: IO[bytes] | None, output: str) -> None:
    from urllib.parse import quote  # noqa: PLC0415 (start-up time)

    from antrea.antctl import flow_map  # noqa: PLC0415
    from antrea.antctl.policy.recommendation import recommend, workload_labels  # noqa: PLC0415
    from antrea.antctl.request import ask  # noqa: PLC0415

    target: Target = click.get_current_context().obj
    if target.mode is not REMOTE:
        raise Failure("only remote mode is supported for this command")
    asked = {"namespace": namespace, "since": since, "by": "endpoint"}
    seen = _read(flows) if flows else flow_map.read(target, asked)
    if seen.get("truncated"):
        raise Failure("the flow aggregator has seen more than one answer holds: ask for less by --since")
    server, links = target.find(), links_of(seen)
    spaces = {end.split("/")[1] for link in links for end in link[:2] if end.startswith("workload/")}
    pods = [
        {**one, "metadata": {**one["metadata"], "namespace": space}}
        for space in sorted(spaces | {namespace})
        for one in ask(server, f"/api/v1/namespaces/{quote(space, safe='')}/pods", {})["items"]
    ]
    found = recommend(namespace, links, workload_labels(pods))
    for line in found.left_out[:MOST_SHOWN]:
        click.echo(f"left out: {one_line(line)}", err=True)
    if len(found.left_out) > MOST_SHOWN:
        click.echo(f"left out: {len(found.left_out) - MOST_SHOWN} more", err=True)
    if not found.policies:
        raise Failure(
            f"no connection of Namespace {namespace} was seen that could be allowed: is --since long enough?"
        )
    if output == "yaml":
        click.echo("---\n".join(text_of(one) for one in found.policies), nl=False)
    elif output == "json":
        items = {"apiVersion": "v1", "kind": "List", "items": found.policies}
        click.echo(json.dumps(items, indent=2))
    else:
        click.echo(render(found.policies, output, COLUMNS, ordered=False), nl=False)


def links_of(seen: Any) -> Sequence[Link]:
    """Of the answer of /flows/map by endpoint; protocols without ports are left out. Raises Failure."""
    from antrea.antctl.policy.recommendation import PROTOCOLS, Link  # noqa: PLC0415 (start-up time)

    try:
        found = [
            Link(str(row["source"]), str(row["target"]), *(int(row[key]) for key in Link._fields[2:]))
            for row in seen["links"]
        ]
    except (KeyError, TypeError, ValueError) as why:
        raise Failure(
            f"--flows: not what `antctl get flowmap --by endpoint -o json` prints: {why!r}"
        ) from why
    for end in (end for link in found for end in link[:2]):
        if not _is_end(end):
            raise Failure(f"--flows: {end!r} is no workload or address: print the ends with --by endpoint")
    return [link for link in found if link.protocol in PROTOCOLS]


def _is_end(end: str) -> bool:
    import ipaddress  # noqa: PLC0415 (start-up time)

    kind, _, rest = end.partition("/")
    if kind != "address":
        return kind == "workload" and rest.count("/") == 1 and all(rest.split("/"))
    try:
        ipaddress.ip_address(rest)
    except ValueError:
        return False
    return True


def _read(file: IO[bytes]) -> Any:
    try:
        return json.load(file)
    except ValueError as why:
        raise Failure(f"--flows: {file.name} is not JSON: {why}") from why


def _selector(selector: dict[str, Any]) -> str:
    return (
        one_word(",".join(f"{key}={value}" for key, value in selector.get("matchLabels", {}).items()))
        or "all"
    )
