"""`antrea-lab`: a real Kubernetes cluster on this machine, without Docker."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from antrea.errors import AntreaError, Invalid
from lab import (
    antrea,
    cluster,
    conformance_run,
    control_plane,
    fault,
    flow_visibility,
    policy_conformance,
    upstream_e2e_run,
)
from lab.demo import show
from lab.record import PROGRAM, Record
from lab.settings import read

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = click.option(
    "--name", default="default", show_default=True, help="Labs with different names run side by side."
)
PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """A real Kubernetes cluster on this machine: real control plane, kubelets and containerds, no Docker."""


@cli.command()
@NAME
@click.option("--nodes", type=int, help="Number of nodes, 0 for the control plane alone [default: 3].")
@click.option("--family", type=click.Choice(["ipv4", "ipv6", "dual"]), help="IP families [default: ipv4].")
@click.option("--kube-proxy", type=click.Choice(["iptables", "nftables", "none"]), help="[default: iptables]")
@click.option("--proxy-all/--no-proxy-all", default=None, help="Have AntreaProxy serve all Services.")
@click.option("--cni", type=click.Choice(["antrea", "reference", "none"]), help="[default: antrea]")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="YAML file with these settings and more; see docs/lab.md.",
)
@click.option(
    "--dev", is_flag=True, default=None, help="Run our Pods from this checkout; `reload` restarts them."
)
@click.option("--keep", is_flag=True, help="Leave a lab of this name that is up as it is.")
def up(name: str, config: Path | None, *, keep: bool, **flags: object) -> None:
    """Start a lab."""
    flags["kubeProxy"], flags["proxyAll"] = flags.pop("kube_proxy"), flags.pop("proxy_all")
    if keep and cluster.is_up(Record(name)):
        click.echo(f"the lab {name!r} is up already")
        return
    cluster.up(Record(name), read(config, flags), click.echo)


@cli.command()
@NAME
def down(name: str) -> None:
    """End a lab and remove all that it made."""
    began = time.monotonic()
    existed = cluster.down(Record(name))
    click.echo(
        f"lab {name!r} is removed ({time.monotonic() - began:.0f} s)"
        if existed
        else f"there is no lab {name!r}"
    )
    for line in () if existed else cluster.others():
        click.echo(line, err=True)


@cli.command()
@NAME
def status(name: str) -> None:
    """Show the processes of a lab and where they run."""
    for line in cluster.status(cluster.open_lab(name)):
        click.echo(line)


@cli.command(context_settings=PASS_ON)
@NAME
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(name: str, arguments: tuple[str, ...]) -> None:
    """kubectl as the cluster's administrator."""
    become(cluster.open_lab(name).api.command(arguments))


@cli.command(context_settings=PASS_ON)
@NAME
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def antctl(name: str, arguments: tuple[str, ...]) -> None:
    """antctl of this checkout, as on the administrator's workstation."""
    lab = cluster.open_lab(name)
    config = f"KUBECONFIG={control_plane.kubeconfig(lab.record)}"
    argv = ["env", config, sys.executable, "-P", "-m", "antrea.antctl.main", *arguments]
    become(cluster.enter(lab, "control", argv))


@cli.command(name="exec", context_settings=PASS_ON)
@NAME
@click.argument("machine")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(name: str, machine: str, command: tuple[str, ...]) -> None:
    """Run COMMAND on a node, or in the network of another machine of the lab (control, gateway, outside, underlay)."""
    argv = command[1:] if command[0] == "--" else command
    become(cluster.enter(cluster.open_lab(name), machine, argv))


@cli.command()
@NAME
@click.argument("which", nargs=-1)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on.")
@click.option("-n", "--lines", default=50, show_default=True, help="How many lines of each.")
def logs(name: str, which: tuple[str, ...], *, follow: bool, lines: int) -> None:
    """Show logs of daemons, such as `kube-apiserver` or `node-1/kubelet`; without a name, list them."""
    files = cluster.logs(cluster.open_lab(name))
    if not which:
        click.echo("\n".join(files))
        return
    for wanted in which:
        if wanted not in files:
            raise Invalid("logs", f"{wanted!r} is none of {', '.join(files)}")
    become(["tail", f"--lines={lines}", *(["-F"] if follow else []), *(str(files[w]) for w in which)])


@cli.command()
def prepare() -> None:
    """Fetch or build programs and images into the cache, so that the next `up` is quick."""
    cluster.prepare(click.echo)


@cli.command(name="fault")
@NAME
@click.argument("machine", metavar="NODE")
@click.argument("kind", type=click.Choice(fault.KINDS))
@click.option("--link", help="Only this card (eth0 or eth1) for cut-link and heal-link.")
def fault_(name: str, machine: str, kind: fault.Kind, link: str | None) -> None:
    """Break a node, or repair it."""
    fault.inject(cluster.open_lab(name), machine, kind, link=link)


@cli.command()
@NAME
@click.argument("machine")
@click.argument("link")
@click.argument("percent", type=float)
def lose(name: str, machine: str, link: str, percent: float) -> None:
    """Lose PERCENT of the packets on a machine's LINK, each way; 0 ends it."""
    fault.lose(cluster.open_lab(name), machine, link, percent)


@cli.command()
@NAME
def reload(name: str) -> None:
    """Restart our programs with the source as it is now (labs started with --dev)."""
    for line in antrea.reload(cluster.open_lab(name)):
        click.echo(f"restarted {line}")


@cli.command()
@NAME
def demo(name: str) -> None:
    """Show the cluster, and Pods on different nodes that reach each other."""
    show(cluster.open_lab(name), click.echo)


@cli.command()
@NAME
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=10348,
    show_default=True,
    help="Of this machine's loopback.",
)
def visibility(name: str, port: int) -> None:
    """Show who talks to whom: start the lab if it is not up, flow visibility in it, and serve its web page until Ctrl-C."""
    with flow_visibility.listening(port) as front:
        if not cluster.is_up(Record(name)):
            cluster.up(Record(name), read(None, {}), click.echo)
        lab = cluster.open_lab(name)
        flow_visibility.install(lab, click.echo)
        flow_visibility.serve(lab, front, click.echo)


@cli.command()
@NAME
@click.option(
    "--focus", help="Regular expression over the names of the specs to run, instead of the committed one."
)
@click.option(
    "--load-balancer",
    is_flag=True,
    help="Give Services of type LoadBalancer addresses, and run specs on these.",
)
@click.option("--resume", is_flag=True, help="Keep what passed in the last run, and run the rest.")
@click.option("--processes", default=1, show_default=True, help="Specs that run at the same time.")
@click.option("--seconds", default=3 * 3600, show_default=True, help="How long it may take.")
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the results to this file, as Markdown.",
)
@click.option(
    "--reports",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where reports and output go [default: beside the lab's logs].",
)
def conformance(name: str, **options: Any) -> None:
    """Run Kubernetes' network specs in a lab that is up; exit 1 if one fails."""
    if not conformance_run.against(
        cluster.open_lab(name), conformance_run.ConformanceOptions(**options), click.echo
    ):
        sys.exit(1)


@cli.command(name="upstream-e2e")
@NAME
@click.option(
    "--program",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Upstream's test/e2e as a compiled test program.",
)
@click.option(
    "--test",
    multiple=True,
    help="Regular expression over the names of the top-level tests to run; repeatable.",
)
@click.option(
    "--selection",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The list of tests, for a program of another version [default: lab/upstream_e2e.yaml].",
)
@click.option("--resume", is_flag=True, help="Keep what passed in earlier runs, and run the rest.")
@click.option("--seconds", default=3600, show_default=True, help="How long one top-level test may take.")
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the results of these and earlier runs to this file, as Markdown.",
)
@click.option(
    "--reports",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the output goes [default: beside the lab's logs].",
)
def upstream_e2e(name: str, **options: Any) -> None:
    """Run upstream's own end-to-end tests in a lab that is up; exit 1 if one fails."""
    if not upstream_e2e_run.against(
        cluster.open_lab(name), upstream_e2e_run.UpstreamE2eOptions(**options), click.echo
    ):
        sys.exit(1)


@cli.command(name="policy-conformance")
@NAME
@click.option("--seconds", default=3600, show_default=True, help="How long it may take.")
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the results to this file, as Markdown.",
)
@click.option(
    "--reports",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where output and report go [default: beside the lab's logs].",
)
def policy_conformance_suite(name: str, **options: Any) -> None:
    """Run the conformance suite of network-policy-api in a lab that is up; exit 1 if a test fails."""
    if not policy_conformance.against(
        cluster.open_lab(name), policy_conformance.PolicyConformanceOptions(**options), click.echo
    ):
        sys.exit(1)


def become(command: Sequence[str]) -> NoReturn:
    """Replace this program by the command, so that its terminal, signals and exit status are the user's."""
    sys.stdout.flush()
    os.execvp(command[0], list(command))


def main() -> None:
    """Exit 0, 1 when something is missing or failed, 2 when the user has to change something."""
    try:
        cli(prog_name=PROGRAM)
    except AntreaError as error:
        click.echo(f"{PROGRAM}: {error}", err=True)
        for note in getattr(error, "__notes__", ()):
            click.echo(note, err=True)
        sys.exit(2 if isinstance(error, Invalid) else 1)
