"""The group `kube-proxy`: `takeover` from a workstation, `node` in an agent's container."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from antrea.antctl.failure import Failure
from antrea.antctl.group import HELP, Group
from antrea.antctl.kube_proxy import node
from antrea.antctl.mode import REMOTE
from antrea.antctl.output import echo
from antrea.features.framework.command import table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.antctl.kube_proxy.plan import ClusterView
    from antrea.antctl.main import Target
    from antrea.features.framework.command import Column

TAKEOVER = """Hand all Services over from kube-proxy to AntreaProxy, Node by Node, and back.

--plan changes nothing: it names what would change on each Node, and what is in the way (exit code 1).
--apply stops at the first Node whose probe fails. --rollback gives kube-proxy back what was changed.
--verify says whether every Node is free of kube-proxy and reaches Services (exit code 1 if not).
The first three print the values of the chart that stand for the change, and --values writes them to a file."""
ACTS = ("plan", "apply", "verify", "rollback")


def _ipvs(row: Mapping[str, Any]) -> str:
    counts = (
        (f"{row.get('ipvsAddresses', 0)} addresses", row.get("ipvs")),
        (f"{row.get('virtualServers')} servers", row.get("virtualServers")),
        (f"{row.get('ipSets')} sets", row.get("ipSets")),
        (f"{row.get('heldAddresses')} addresses held", row.get("heldAddresses")),
        (f"{row.get('keptRoutes')} routes kept", row.get("keptRoutes")),
    )
    return ", ".join(text for text, there in counts if there) or "no"


COLUMNS: tuple[Column, ...] = (
    ("NODE", lambda row: str(row["node"])),
    ("KUBE-PROXY", lambda row: "runs" if row.get("runs") else "no"),
    ("CHAINS", lambda row: str(row.get("chains", "unknown"))),
    ("TABLES", lambda row: ", ".join(row.get("tables", ()))),
    ("IPVS", _ipvs),
    ("PROXYALL", lambda row: str(bool(row.get("proxyAll"))).lower()),
    ("SERVICES", lambda row: row["why"] or "served"),
)


def command() -> click.Command:
    """The group."""
    takeover = click.Command(
        "takeover",
        context_settings=HELP,
        params=[
            *(click.Option([f"--{act}"], is_flag=True, help=f"{act} the take-over") for act in ACTS),
            click.Option(["--api-server"], default="", help="what kubeAPIServerOverride becomes, such as https://192.0.2.10:6443"),
            click.Option(["--values"], type=click.Path(dir_okay=False, path_type=Path), help="write the values of the chart to this file"),
            click.Option(
                ["--force-conflicts"], is_flag=True,
                help="with --apply: edit ConfigMap antrea-config though Helm or a GitOps tool applies it; the values have to be set there, too",
            ),
        ],
        callback=_takeover,
        short_help="Hand all Services over from kube-proxy to AntreaProxy, and back",
        help=TAKEOVER,
    )  # fmt: skip
    act_command = click.Command(
        "node",
        context_settings=HELP,
        params=[
            click.Option(["--clean"], is_flag=True, help="remove the rules of a kube-proxy that is gone"),
            click.Option(
                ["--keep"],
                is_flag=True,
                help="keep established connections to Services in the switch when kube-proxy in mode ipvs starts",
            ),
        ],
        callback=node.callback,
        short_help="Print what kube-proxy has on the Node of this agent",
        help="Print what kube-proxy has on the Node of this agent, as JSON.",
    )
    short = "Hand Services over between kube-proxy and AntreaProxy"
    return Group("kube-proxy", [takeover, act_command], context_settings=HELP, help=short)


def _takeover(api_server: str, values: Path | None, *, force_conflicts: bool, **acts: bool) -> None:
    from antrea.antctl.kube_proxy.cluster import Cluster  # noqa: PLC0415 (start-up time)
    from antrea.antctl.kube_proxy.plan import chart_values  # noqa: PLC0415
    from antrea.antctl.kube_proxy.takeover import Takeover  # noqa: PLC0415

    requested = [act for act in ACTS if acts[act]]
    if len(requested) != 1:
        raise Failure(f"exactly one of {', '.join(f'--{act}' for act in ACTS)} has to be given")
    if values and requested == ["verify"]:
        raise Failure("--verify changes nothing, so there are no --values to write")
    context = click.get_current_context()
    target: Target = context.obj
    if target.mode is not REMOTE:
        raise Failure("only remote mode is supported for this command")
    cluster = Cluster(target.find())
    if requested == ["plan"]:
        view = cluster.view(api_server)
        code = show_plan(view, force_conflicts=force_conflicts)
        show_values(chart_values(proxy_all=True, override=view.override), values)
        context.exit(code)
    if requested == ["verify"]:
        context.exit(show_nodes(cluster.view(api_server)))
    work = Takeover(cluster, echo)
    if requested == ["apply"]:
        show_values(work.apply(api_server, force_conflicts=force_conflicts), values)
    else:
        show_values(work.roll_back(), values)


def show_values(chosen: Mapping[str, Any], file: Path | None) -> None:
    """Print values of the chart, and write them to `file`. Raises Failure."""
    from antrea.antctl.yaml_text import text_of  # noqa: PLC0415 (start-up time)

    text = text_of(chosen)
    echo(
        f"\nValues of the chart, without which an upgrade of a Helm release undoes this:\n\n{text}", nl=False
    )
    if file:
        try:
            file.write_text(text)
        except OSError as error:
            raise Failure(f"cannot write {file}: {error.strerror}") from error


def show_plan(view: ClusterView, *, force_conflicts: bool = False) -> int:
    """Print it; 1: something is in the way."""
    from antrea.antctl.kube_proxy.plan import blockers, changes  # noqa: PLC0415 (start-up time)

    show_nodes(view)
    echo(f"\nkube-proxy's mode: {view.mode}\n\nApplying changes, in this order:")
    for line in changes(view):
        echo(f"- {line}")
    blocked = list(blockers(view, force_conflicts=force_conflicts))
    echo("\nIn the way:" if blocked else "\nNothing is in the way.")
    for line in blocked:
        echo(f"- {line}")
    return int(bool(blocked))


def show_nodes(view: ClusterView) -> int:
    """Print a row for each Node; 1: kube-proxy has something on one, or Services are not served there without it."""
    rows = [
        {"node": node.name, **node.report, "why": node.unseen or node.report["trouble"]}
        for node in view.nodes
    ]
    echo(table(rows, COLUMNS, ordered=True), nl=False)
    return int(not all(node.is_free and not node.serves for node in view.nodes))
