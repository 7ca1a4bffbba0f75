"""Our own CNI on a lab: the generated manifest, with the lab's settings in its ConfigMap, and the development mode."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from antrea.errors import Unavailable
from lab import artifacts, cgroup, control_plane
from lab.node_files import SOURCE
from lab.record import PROGRAM

if TYPE_CHECKING:
    from lab.cluster import Lab
    from lab.record import Record
    from lab.settings import Settings

MANIFEST = Path(__file__).parents[1] / "build/yamls/antrea.yml"
POLICY_API = MANIFEST.with_name("network-policy-api-crds.yml")
"""Definitions of the kinds of policy.networking.k8s.io, which the manifest does not have."""
CHART = MANIFEST.parents[1] / "charts/antrea"
FIRST_TEMPLATE = "---\n# Source: antrea/templates/"
ENGINE_GATES = {
    "L7NetworkPolicy": "--l7-engine",
    "L7FlowExporter": "--l7-engine",
    "BGPPolicy": "--bgp-engine",
}
"""Options of build/image.py by the gates of features that have a container and an image of their own."""
CONFIG_MAP = "antrea-config"
PROGRAMS = ("antrea-agent", "antrea-controller")

# A container that is restarted often is held back by kubelet for longer and longer; this loop is not. A signal to the
# loop itself still ends both.
AGAIN = 'trap "kill \\$p; wait \\$p; exit" TERM; while :; do "$@" & p=$!; wait $p; sleep 0.2; done'


def overrides(lab: Lab) -> dict[str, dict[str, Any]]:
    """Return the settings that differ from the manifest's configuration, by the ConfigMap's keys."""
    agent: dict[str, Any] = {"ovsDatapathType": "netdev", "transportInterface": "eth1"}
    controller: dict[str, Any] = {}
    if lab.settings.proxy_all:
        agent["antreaProxy"] = {"proxyAll": True}
    if lab.settings.kube_proxy == "none":
        server = control_plane.server_url(lab.topology)
        agent["kubeAPIServerOverride"] = controller["kubeAPIServerOverride"] = server
    return {
        "antrea-agent.conf": merged(agent, lab.settings.agent),
        "antrea-controller.conf": merged(controller, lab.settings.controller),
    }


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` wins; maps are merged key by key, so that one gate can be set without repeating the others."""
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def manifest(lab: Lab, text: str) -> str:
    """The manifest with the lab's configuration, and with our programs running from the checkout in `--dev`."""
    objects = [o for o in yaml.safe_load_all(text) if o]
    for item in objects:
        if item["kind"] == "ConfigMap" and item["metadata"]["name"] == CONFIG_MAP:
            for key, values in overrides(lab).items():
                conf = yaml.safe_load(item["data"][key]) or {}
                item["data"][key] = yaml.safe_dump(merged(conf, values), sort_keys=False)
        if lab.settings.dev and item["kind"] in ("DaemonSet", "Deployment"):
            _develop(item["spec"]["template"]["spec"])
    return yaml.safe_dump_all(objects, sort_keys=False)


def _develop(pod: dict[str, Any]) -> None:
    volume = {"name": "lab-source", "hostPath": {"path": SOURCE, "type": "Directory"}}
    for container in pod["containers"]:
        argv = [*container.get("command", []), *container.get("args", [])]
        if not argv or Path(argv[0]).name not in PROGRAMS:
            continue
        container["command"] = ["sh", "-c", AGAIN, "lab-dev", *argv]
        container.pop("args", None)
        container.setdefault("env", []).append({"name": "PYTHONPATH", "value": SOURCE})
        mount = {"name": "lab-source", "mountPath": SOURCE, "readOnly": True}
        container.setdefault("volumeMounts", []).append(mount)
        if volume not in pod.setdefault("volumes", []):
            pod["volumes"].append(volume)


def install(lab: Lab) -> None:
    """Apply the manifest, definitions first. Raises Unavailable when it has not been generated."""
    try:
        text, definitions = MANIFEST.read_text(), POLICY_API.read_text()
    except FileNotFoundError as error:
        raise Unavailable(f"{MANIFEST}: run `make manifests`, or use `--cni reference`") from error
    if sets := containers(lab.settings):
        # definitions of kinds are not among what Helm prints
        text = text[: text.index(FIRST_TEMPLATE)] + rendered(sets)
    lab.api.apply(f"{definitions}---\n{manifest(lab, text)}")


def containers(settings: Settings) -> list[str]:
    """Values of the chart that add containers to the manifest, for the gates of agents that need these."""
    gates = settings.agent.get("featureGates") or {}
    return [f"featureGates.{name}=true" for name in ENGINE_GATES if gates.get(name)]


def engines(settings: Settings) -> list[str]:
    """Options of build/image.py for the images that these containers run."""
    gates = settings.agent.get("featureGates") or {}
    return [*dict.fromkeys(option for name, option in ENGINE_GATES.items() if gates.get(name))]


def rendered(sets: list[str]) -> str:
    """The manifest that the chart makes of these values, without definitions of kinds."""
    values = [word for setting in sets for word in ("--set", setting)]
    program = artifacts.helm(lambda _: None)
    command = [str(program), "template", "antrea", str(CHART), "--namespace", "kube-system", *values]
    return subprocess.check_output(command, text=True)


def reload(lab: Lab) -> list[str]:
    """End our programs on all nodes, which their loop starts again with the source as it is now; answers what was ended."""
    if not lab.settings.dev:
        raise Unavailable(
            f"this lab runs our programs from the image; `{PROGRAM} up --dev` runs them from the source"
        )
    ended = []
    for pid, program in running(lab.record):
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:  # ended since it was listed
            continue
        ended.append(f"{program} (pid {pid})")
    return ended


def running(record: Record) -> list[tuple[int, str]]:
    """Pids, as the machine numbers them, of our programs on the nodes of this lab, and which program each is."""
    processes = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            argv = (place / "cmdline").read_bytes().split(b"\0")
            groups = (place / "cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # a console script: the interpreter, then the program; the loop around it is `sh -c ...`
        name = next(
            (Path(os.fsdecode(w)).name for w in argv[:4] if Path(os.fsdecode(w)).name in PROGRAMS), None
        )
        if name and f"/{cgroup.top_name(record)}/" in groups:
            processes.append((int(place.name), name))
    return sorted(processes)
