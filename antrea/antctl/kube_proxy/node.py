"""`antctl kube-proxy node`, in an agent's container: what kube-proxy has on this Node, and its removal."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from antrea.antctl.doctor.gather import Host, service_trouble
from antrea.antctl.failure import Failure
from antrea.antctl.kube_proxy import ipvs
from antrea.antctl.kube_proxy.ruleset import commands, leftover, ruleset
from antrea.antctl.mode import AGENT
from antrea.antctl.request import ask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.antctl.kube_proxy.ruleset import Leftover
    from antrea.antctl.main import Target

PROCESS = "kube-proxy"
COMMAND_SECONDS = 60


def callback(clean: bool) -> None:
    """Print one JSON object."""
    target: Target = click.get_current_context().obj
    if target.mode is not AGENT:
        raise Failure("it looks at the Node of an agent: run it in an agent's container")
    rows = ask(target.find(), "/config", {})
    config = {row["key"]: row["value"] for row in rows}
    host = Host(Path(config.get("hostProcPathPrefix", "/host")) / "proc")
    try:
        if clean:
            remove(host)
        click.echo(json.dumps(look(host, config, os.environ)))
    except (OSError, ValueError, subprocess.SubprocessError) as why:
        raise Failure(f"the Node cannot be looked at: {_told(why)}") from why


def look(host: Host, config: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """What there is of kube-proxy, and whether Services are served. Raises OSError, SubprocessError, ValueError."""
    found = _listed()
    return {
        "runs": PROCESS in host.processes(),
        "tables": [" ".join(place) for place in found.tables],
        "chains": len(found.chains),
        "held": sorted({f"{' '.join(one.place)} {one.chain} -> {one.target}" for one in found.held}),
        "legacy": _legacy_tables(),
        **ipvs.counts(ipvs.left()),
        "proxyAll": bool(config.get("antreaProxy.proxyAll")),
        "trouble": service_trouble(environ),
    }


def remove(host: Host) -> None:
    """All that is kube-proxy's in nftables, in one transaction, and of IPVS, while it does not run. Raises as `look`, Failure."""
    if PROCESS in host.processes():
        raise Failure("kube-proxy runs on this Node and would make its rules again")
    if script := commands(_listed()):
        _run("nft", "-f", "-", given=script)
    ipvs.remove(ipvs.left())


def _listed() -> Leftover:
    return leftover(ruleset(_run("nft", "-j", "list", "ruleset")))


def _legacy_tables() -> list[str]:
    """Tables that iptables-legacy has in the kernel, by family."""
    found = []
    for family in ("ip", "ip6"):
        names = Path(f"/proc/thread-self/net/{family}_tables_names")
        if names.exists():
            found += [f"{family} {name}" for name in names.read_text().split()]
    return found


def _run(*command: str, given: str = "") -> str:
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, check=True, timeout=COMMAND_SECONDS
    )
    return done.stdout


def _told(why: Exception) -> str:
    said = (why.stderr or "").strip() if isinstance(why, subprocess.CalledProcessError) else ""
    return said or f"{type(why).__name__}: {why}"
