"""The command `antctl cleanup` and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from antrea import IMAGE, VERSION
from antrea.antctl.check.room import interruptible
from antrea.antctl.cleanup.cluster_objects import ClusterObjects
from antrea.antctl.cleanup.node_pods import NodePods, Removed, Settings
from antrea.antctl.cleanup.uninstalled import require_uninstalled, wait_uninstalled
from antrea.antctl.failure import Failure
from antrea.antctl.group import HELP, output_option
from antrea.antctl.output import echo, render
from antrea.antctl.request import ask
from antrea.config.shape import seconds
from antrea.features.framework.command import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from antrea.antctl.cleanup.cluster_objects import Left
    from antrea.antctl.main import Target
    from antrea.antctl.request import Server
    from antrea.features.framework.command import Column

REQUEST_TIMEOUT: Final = 10.0
CLUSTER: Final = "(cluster)"
"""Name of the row of objects that belong to no Node."""
TEXT = """Remove what Antrea leaves on Nodes and in the cluster after it was uninstalled.

A Pod on each Node removes the CNI configuration and plugin, gives the transport interface its addresses back, and removes bridges,
nftables tables, routes, devices and state files. With --all, objects that Antrea's programs created are removed afterwards.
Refuses while Antrea is installed. Exit code 1: something could not be removed, or a Node did not answer in time."""
COLUMNS: tuple[Column, ...] = (
    ("NAME", lambda row: str(row["name"])),
    ("REMOVED", lambda row: str(len(row["removed"]))),
    ("KEPT", lambda row: "; ".join(row["kept"])),
    ("ERROR", lambda row: str(row["error"])),
)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Request for a removal."""

    nodes: tuple[str, ...]
    """Empty: all Nodes, and the objects of the cluster."""
    crds: bool
    wait_seconds: float | None
    """How long to wait until Antrea is uninstalled; None: it has to be."""
    pods: Settings


def command() -> click.Command:
    """The command `cleanup`."""
    return click.Command(
        "cleanup",
        context_settings=HELP,
        params=[
            click.Option(["--node"], multiple=True, help="a Node to clean; may be repeated"),
            click.Option(["--all", "everything"], is_flag=True, help="clean all Nodes, and objects of the cluster"),
            click.Option(["--crds"], is_flag=True, help="with --all: delete the CRDs of Antrea, and so all policies, Egresses and other objects of them"),
            click.Option(["--logs"], is_flag=True, help="delete /var/log/antrea on Nodes"),
            click.Option(["--dry-run"], is_flag=True, help="name what is left, and remove nothing"),
            click.Option(["--wait-for-uninstall"], is_flag=True, help="wait until Antrea is uninstalled and its Pods have ended"),
            click.Option(["--wait-duration"], default="5m", show_default=True, help="how long to wait for that"),
            click.Option(["--node-timeout"], default="2m", show_default=True, help="deadline for each Node"),
            click.Option(["-n", "--namespace"], default="kube-system", show_default=True, help="Namespace in which Antrea was; the Pods that clean Nodes run there"),
            click.Option(["--image"], default=f"{IMAGE}:v{VERSION}", show_default=True, help="image of these Pods: that of the agents"),
            click.Option(["--cni-bin-path"], default="/opt/cni/bin", show_default=True, help="the value cni.hostBinPath of the chart"),
            output_option(),
        ],
        callback=_callback,
        short_help="Remove what Antrea leaves after it was uninstalled",
        help=TEXT,
    )  # fmt: skip


def _callback(node: tuple[str, ...], output: str, *, everything: bool, crds: bool, **options: Any) -> None:
    if bool(node) == everything:
        raise Failure("exactly one of --node and --all has to be given")
    if crds and node:
        raise Failure("--crds concerns the whole cluster: it needs --all")
    request = Request(
        nodes=node,
        crds=crds,
        wait_seconds=_duration("--wait-duration", options["wait_duration"])
        if options["wait_for_uninstall"]
        else None,
        pods=Settings(
            namespace=options["namespace"],
            image=options["image"],
            cni_bin=options["cni_bin_path"],
            seconds=_duration("--node-timeout", options["node_timeout"]),
            dry_run=options["dry_run"],
            logs=options["logs"],
        ),
    )
    context = click.get_current_context()
    target: Target = context.obj
    server = target.find()
    with interruptible():
        rows = clean(server._replace(seconds=server.seconds or REQUEST_TIMEOUT), request)
    answer = [msgspec.to_builtins(row) for row in rows]
    text = (
        table(answer, COLUMNS, ordered=False)
        if output == "table"
        else render(answer, output, (), ordered=False)
    )
    echo(text, nl=False)
    context.exit(1 if any(row.error for row in rows) else 0)


def _duration(option: str, text: str) -> float:
    try:
        value = seconds(text)
    except ValueError as error:
        raise Failure(f"{option}: {error}") from error
    if value < 1:
        raise Failure(f"{option}: {text} is less than 1s")
    return value


def clean(server: Server, request: Request) -> list[Removed]:
    """Clean the Nodes, then the cluster, and return what was removed; progress goes to stderr. Raises Failure."""
    listed: list[Any] = ask(server, "/api/v1/nodes", {})["items"]
    names = {item["metadata"]["name"] for item in listed}
    if unknown := sorted({*request.nodes} - names):
        raise Failure(f"there is no Node {', '.join(unknown)}; the Nodes are {', '.join(sorted(names))}")
    namespace, is_linux = request.pods.namespace, {"kubernetes.io/os": "linux"}.items()
    if request.wait_seconds is None:
        require_uninstalled(server, namespace, listed)
    else:
        wait_uninstalled(server, namespace, listed, seconds=request.wait_seconds, say=_print_progress)
    chosen = [
        item
        for item in sorted(listed, key=lambda item: str(item["metadata"]["name"]))
        if (not request.nodes or item["metadata"]["name"] in request.nodes)
        and is_linux <= (item["metadata"].get("labels") or {}).items()
    ]
    with NodePods(server, request.pods, _print_progress) as pods:
        rows = pods.run(chosen)
    objects = ClusterObjects(server, namespace)
    for item, row in zip(chosen, rows, strict=True):
        _remove(row, objects.of_node(item), dry_run=request.pods.dry_run)
    if not request.nodes:
        rows.append(_clean_cluster(objects, listed, request))
    return rows


def _clean_cluster(objects: ClusterObjects, nodes: Iterable[Mapping[str, Any]], request: Request) -> Removed:
    row = Removed(CLUSTER)
    _remove(row, objects.registrations(), dry_run=request.pods.dry_run)
    _remove(row, objects.rest(nodes, crds=request.crds), dry_run=request.pods.dry_run)
    return row


def _remove(row: Removed, left: Iterable[Left], *, dry_run: bool) -> None:
    """Remove objects, and end at the first that cannot be."""
    subject = ""
    try:
        for item in left:
            subject = f"{item.subject}: "
            if item.remove is None:
                row.kept.append(f"{subject}{item.why}")
                continue
            if not dry_run:
                item.remove()
            row.removed.append(item.subject)
    except Failure as error:
        row.error = "; ".join(filter(None, (row.error, f"{subject}{error.format_message()}")))


def _print_progress(line: str) -> None:
    echo(line, err=True)
