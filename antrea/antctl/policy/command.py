"""The group `policy`: `recommend` makes NetworkPolicies of the connections that the flow aggregator has seen."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any, Final

import click

from antrea.antctl.failure import Failure
from antrea.antctl.group import HELP, Group
from antrea.antctl.mode import REMOTE
from antrea.antctl.output import echo, render
from antrea.antctl.yaml_text import text_of
from antrea.apis.shown import one_line, one_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.antctl.main import Target
    from antrea.features.framework.command import Column

SHORT: Final = "Recommend network policies, and try them on what was seen"
TEXT: Final = """Print the Kubernetes NetworkPolicies that allow the connections that were seen in a Namespace, and no others.

The flow aggregator keeps what was seen (flowVisibility.enable in the chart). Each policy names the connections that it
comes from. What policies denied is not allowed, nor are connections whose direction is unknown: both are named on
standard error. Look at what is printed before you apply
it: a connection that happens once a month may not have been seen.

\b
Examples:
  antctl policy recommend --namespace shop --since 24h > policies.yaml
  antctl policy recommend -n shop --flows seen.json -o table"""
REPLAY: Final = """Show which connections that were seen would be judged otherwise with the policies of a file in place.

Objects of the same kind and name as one of the file are replaced by it, all others stay. Each connection is judged as
`antctl explain` does, in each family, by Pods of each workload whose labels, ports or ServiceAccount differ. Exit code 0:
no verdict would change; 3: some would; 1: nothing could be judged.

\b
Examples:
  antctl policy replay -f policies.yaml --since 24h
  antctl policy replay -f policies.yaml -n shop -o json"""
CHANGES: Final = 3
MAX_SHOWN: Final = 20
"""Maximum number of lines that are shown about unused connections."""
COLUMNS: tuple[Column, ...] = (
    ("NAME", lambda row: row["metadata"]["name"]),
    ("POD-SELECTOR", lambda row: _selector(row["spec"]["podSelector"])),
    ("INGRESS-RULES", lambda row: str(len(row["spec"].get("ingress", ())))),
    ("EGRESS-RULES", lambda row: str(len(row["spec"].get("egress", ())))),
)
CHANGED: tuple[Column, ...] = (
    ("SOURCE", lambda row: one_word(row["source"].partition("/")[2])),
    ("TARGET", lambda row: one_word(row["target"].partition("/")[2])),
    ("PORT", lambda row: str(row["port"])),
    ("CONNECTIONS", lambda row: str(row["connections"])),
    ("BEFORE", lambda row: str(row["before"])),
    ("AFTER", lambda row: str(row["after"])),
    ("WHY", lambda row: one_line(row["why"])),
)


def command() -> click.Command:
    """The group."""
    common = (
        click.Option(["--since"], default="1h", show_default=True, help="how long ago, such as 15m or 24h; at most 744h"),
        click.Option(
            ["--flows"], type=click.File("rb"),
            help="what was seen, as `antctl get flowmap --by endpoint -o json` prints it, instead of the flow aggregator",
        ),
    )  # fmt: skip
    recommend = click.Command(
        "recommend",
        context_settings=HELP,
        params=[
            click.Option(["-n", "--namespace"], required=True, help="whose Pods are to be isolated"),
            *common, _output("yaml", "yaml", "json", "table"),
        ],
        callback=_recommend,
        short_help="Recommend NetworkPolicies for a Namespace",
        help=TEXT,
    )  # fmt: skip
    replay = click.Command(
        "replay",
        context_settings=HELP,
        params=[
            click.Option(["-f", "--filename"], type=click.File("rb"), required=True, help="policies, groups and tiers as YAML or JSON"),
            click.Option(["-n", "--namespace"], default="", help="only connections with an end in this Namespace"),
            *common, _output("table", "table", "json", "yaml"),
        ],
        callback=_replay,
        short_help="Show which connections that were seen would be judged otherwise",
        help=REPLAY,
    )  # fmt: skip
    return Group("policy", [recommend, replay], context_settings=HELP, help=SHORT)


def _output(*forms: str) -> click.Option:
    return click.Option(
        ["-o", "--output"],
        default=forms[0],
        show_default=True,
        type=click.Choice(forms[1:]),
        help="output format",
    )


def _recommend(namespace: str, since: str, flows: IO[bytes] | None, output: str) -> None:
    from urllib.parse import quote  # noqa: PLC0415 (start-up time)

    from antrea.antctl.policy.recommendation import recommend  # noqa: PLC0415
    from antrea.antctl.policy.seen import seen_links  # noqa: PLC0415
    from antrea.antctl.request import ask  # noqa: PLC0415

    target: Target = click.get_current_context().obj
    if target.mode is not REMOTE:
        raise Failure("only remote mode is supported for this command")
    if not namespace:
        raise Failure("--namespace: it is empty: name the Namespace whose Pods are to be isolated")
    server, (links, bad) = target.find(), seen_links(target, namespace, since, flows)
    spaces = {end.split("/")[1] for link in links for end in link[:2] if end.startswith("workload/")}
    pods = [
        {**item, "metadata": {**item["metadata"], "namespace": space}}
        for space in sorted(spaces | {namespace})
        for item in ask(server, f"/api/v1/namespaces/{quote(space, safe='')}/pods", {})["items"]
    ]
    recommendation = recommend(namespace, links, pods)
    _name_each("left out", [*bad, *recommendation.left_out])
    _name_each("note", recommendation.notes)
    if not recommendation.policies:
        raise Failure(
            f"no connection of Namespace {namespace} was seen that could be allowed: is --since long enough?"
        )
    if output == "yaml":
        echo("---\n".join(text_of(policy) for policy in recommendation.policies), nl=False)
    elif output == "json":
        items = {"apiVersion": "v1", "kind": "List", "items": recommendation.policies}
        echo(json.dumps(items, indent=2))
    else:
        echo(render(recommendation.policies, output, COLUMNS, ordered=False), nl=False)


def _documents(file: IO[bytes]) -> list[Any]:
    import yaml  # noqa: PLC0415 (start-up time)

    return list(yaml.safe_load_all(file))


def _replay(filename: IO[bytes], namespace: str, since: str, flows: IO[bytes] | None, output: str) -> None:

    from antrea.antctl.explain.source import of_cluster  # noqa: PLC0415
    from antrea.antctl.policy.seen import seen_links  # noqa: PLC0415
    from antrea.antctl.policy.whatif import replay, sentences, with_objects  # noqa: PLC0415
    from antrea.decoding import guarded  # noqa: PLC0415
    from antrea.errors import Invalid  # noqa: PLC0415

    target: Target = click.get_current_context().obj
    if target.mode is not REMOTE:
        raise Failure("only remote mode is supported for this command")
    try:
        documents = guarded(filename.name, _documents, filename)
    except Invalid as error:
        raise Failure(f"--filename: {filename.name} has no objects of Kubernetes: {error.why}") from error
    manifests = [document for document in documents if document]
    try:
        items = [
            item
            for manifest in manifests
            for item in (manifest["items"] if manifest.get("kind") == "List" else [manifest])
        ]
        source = of_cluster(target.find())
        after = with_objects(source, items, namespace=namespace or "default")
    except (AttributeError, TypeError, KeyError) as error:
        raise Failure(
            f"--filename: {filename.name} has no objects of Kubernetes: {one_line(str(error))}"
        ) from error
    except Invalid as error:
        raise Failure(f"--filename: {error}") from error
    links, bad = seen_links(target, namespace, since, flows)
    outcome = replay(source, after, links)
    rows = [
        {**change.link._asdict(), "before": change.before, "after": change.after, "why": change.sentence}
        for change in outcome.changed
    ]
    _name_each("not taken into account", source.lacks)
    _name_each("not judged", [*bad, *outcome.unjudged])
    if not outcome.judged:
        raise Failure("no connection was judged: is --since long enough?")
    echo(render(rows, output, CHANGED, ordered=False), nl=False)
    for line in sentences(outcome):
        echo(line, err=True)
    click.get_current_context().exit(CHANGES if rows else 0)


def _name_each(what: str, lines: Sequence[str]) -> None:
    for line in lines[:MAX_SHOWN]:
        echo(f"{what}: {one_line(line)}", err=True)
    if len(lines) > MAX_SHOWN:
        echo(f"{what}: {len(lines) - MAX_SHOWN} more", err=True)


def _selector(selector: dict[str, Any]) -> str:
    return (
        one_word(",".join(f"{key}={value}" for key, value in selector.get("matchLabels", {}).items()))
        or "all"
    )
