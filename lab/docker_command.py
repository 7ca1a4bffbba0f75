"""`docker ps` and `docker exec` as upstream's end-to-end suite calls them for clusters of kind, answered by a lab's nodes.

The suite runs this in the place of Docker's client; the lab is named by ANTREA_LAB.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

import click

from antrea.errors import Unavailable
from lab import cluster, node, outside_machine
from lab.node_files import BINARIES
from lab.topology import PODS, SERVICES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.topology import Topology

LAB = "ANTREA_LAB"
ANSWERS = {"cluster-cidr": PODS, "service-cluster-ip-range": SERVICES}
"""Flags that the suite looks for in `kubectl cluster-info dump`; a lab's control plane has processes where others have Pods."""


@click.group()
def cli() -> None:
    """Docker's client, as far as upstream's suite uses it."""


@cli.command()
@click.option("--filter", "wanted")
def ps(wanted: str | None) -> None:
    """Print the container that `--filter name=control-plane` is meant to find: the lab's first node."""
    if wanted != "name=control-plane":
        raise click.BadParameter(f"{wanted} is not name=control-plane", param_hint="--filter")
    click.echo(f"CONTAINER ID   NAMES\n-              {_lab().topology.nodes[0].name}")


@cli.command(name="exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-i", "--interactive", is_flag=True)
@click.option("-e", "--env", multiple=True)
@click.option("-w", "--workdir", default="/")
@click.argument("machine")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(
    machine: str, command: tuple[str, ...], *, interactive: bool, env: tuple[str, ...], workdir: str
) -> NoReturn:
    """Run COMMAND on a node of the lab, or on a machine outside its cluster."""
    lab = _lab()
    if known := known_answer(command, lab.topology):
        click.echo(known)
        raise SystemExit(0)
    if machine in outside_machine.machines(lab):
        # the suite means what SSH makes of it there
        argv = outside_machine.inside(lab.record, machine, ["sh", "-c", " ".join(command)])
    elif machine in (node_machine.name for node_machine in lab.topology.nodes):
        argv = node.inside(lab.record, machine, on_node(command, env, workdir))
    else:
        raise Unavailable(f"the lab {lab.record.name!r} has no node or machine {machine!r}")
    if not interactive:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execvp(argv[0], argv)


def known_answer(command: Sequence[str], topology: Topology) -> str:
    """The line that the suite looks for in `kubectl cluster-info dump | grep FLAG`, which gets here as words."""
    flag = command[-1]
    if tuple(command[:3]) != ("kubectl", "cluster-info", "dump") or flag not in ANSWERS:
        return ""
    return f'"--{flag}={",".join(ANSWERS[flag].prefixes(topology.family))}"'


def on_node(command: Sequence[str], env: Sequence[str], workdir: str) -> list[str]:
    """The words that run the command in that directory, with these variables, and with the node's kubectl in its PATH."""
    path = f"PATH={BINARIES}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return ["env", f"--chdir={workdir}", path, "HOME=/root", *env, *command]


def _lab() -> cluster.Lab:
    return cluster.open_lab(os.environ[LAB])


if __name__ == "__main__":
    cli(prog_name="docker")
