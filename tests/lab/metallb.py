"""MetalLB's own controller and speakers beside us, and what is asked of both."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agent_node import antctl

from lab import cluster, control_plane, namespace, node
from lab.go_build import GoModule, build, toolchain
from lab.images import AGNHOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lab.cluster import Lab

HERE = Path(__file__).parent
PACKAGE = "go.universe.tf/metallb"
METALLB = GoModule(
    folder=HERE.parent / "wide/go/metallb",
    version="v0.15.2",
    packages={name: f"{PACKAGE}/{name}" for name in ("controller", "speaker")},
)
SPACE, OURS_CLASS, THEIR_CLASS = "metallb-system", "service.antrea.io/external-ip", "metallb.io/metallb"
OURS = "172.30.0.215"
NODES = ("node-1", "node-2")
POD = """
apiVersion: v1
kind: Pod
metadata: {name: NODE, namespace: metallb-system, labels: {component: speaker}}
spec:
  nodeName: NODE
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers: [{name: speaker, image: IMAGE, imagePullPolicy: Never, args: [pause]}]
"""


@contextlib.contextmanager
def running(lab: Lab, where: Path, log: Path, words: Sequence[str | Path]) -> Iterator[None]:
    """A program of theirs in a network, with the rights of an administrator; a failure has its last lines."""
    config = control_plane.kubeconfig(lab.record)
    command = namespace.inside(where, ["env", f"KUBECONFIG={config}", *words])
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            yield
            assert process.poll() is None
        except BaseException as error:
            error.add_note(f"{log.name}: {log.read_text()[-2000:]}")
            raise
        finally:
            process.terminate()


def thing(kind: str, spec: dict[str, object], version: str = "v1beta1") -> str:
    """One of MetalLB's objects, named `theirs`."""
    meta = {"name": "theirs", "namespace": SPACE}
    return json.dumps({"apiVersion": f"metallb.io/{version}", "kind": kind, "metadata": meta, "spec": spec})


@contextlib.contextmanager
def metallb(lab: Lab, logs: Path, options: Sequence[str], things: Sequence[str]) -> Iterator[None]:
    """The controller, and a speaker on each Node; `things` tell them what to do."""
    programs = build(METALLB, ["controller", "speaker"], print)
    words = (toolchain(print), "list", "-m", "-f", "{{.Dir}}", PACKAGE)
    run = subprocess.run(words, cwd=METALLB.folder, capture_output=True, text=True, check=True)
    crds = Path(run.stdout.strip(), "config/crd/bases")
    lab.api.kubectl("apply", "--server-side", "-f", str(crds))
    lab.api.kubectl("create", "namespace", SPACE)
    lab.api.kubectl("wait", "--for=condition=Established", "-f", str(crds))
    for one in things:
        lab.api.apply(one)
    # a speaker reads the Pod that it is in
    pods = [POD.replace("NODE", name).replace("IMAGE", AGNHOST) for name in NODES]
    lab.api.apply("---\n".join(pods))
    own = (f"--namespace={SPACE}", *options)
    with contextlib.ExitStack() as stack:
        control = namespace.path(lab.record, "control")
        controller: list[str | Path] = [
            programs["controller"],
            *own,
            "--webhook-mode=disabled",
            "--disable-cert-rotation",
            "--port=7999",
        ]
        stack.enter_context(running(lab, control, logs / "controller.log", controller))
        for name in NODES:
            network = Path(f"/proc/{node.init_pid(lab.record, name)}/ns/net")
            speaker: list[str | Path] = [
                programs["speaker"],
                *own,
                f"--node-name={name}",
                f"--pod-name={name}",
                "--port=7999",
            ]
            stack.enter_context(running(lab, network, logs / f"{name}.log", speaker))
        try:
            yield
        finally:
            lab.api.kubectl("delete", "service", "ours", "theirs", "both", "--ignore-not-found")
            lab.api.kubectl("delete", "namespace", SPACE, seconds=120)
            lab.api.kubectl("delete", "-f", str(crds), seconds=120)


def service(name: str, pool: str = "", balancer: str = "") -> str:
    annotations = {"service.antrea.io/external-ip-pool": pool} if pool else {}
    spec = {
        "type": "LoadBalancer",
        "selector": {"app": "balanced"},
        "ports": [{"port": 80, "targetPort": 8080}],
    }
    if balancer:
        spec["loadBalancerClass"] = balancer
    meta = {"name": name, "annotations": annotations}
    return json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})


def addresses(lab: Lab) -> dict[str, list[str]]:
    found = json.loads(lab.api.kubectl("get", "services", "-o", "json"))["items"]
    rows = {one["metadata"]["name"]: one["status"]["loadBalancer"].get("ingress", []) for one in found}
    return {name: [one["ip"] for one in ingress] for name, ingress in rows.items() if name != "kubernetes"}


def inside(lab: Lab, machine: str, words: Sequence[str]) -> str:
    command = cluster.enter(lab, machine, words)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def fetch(lab: Lab, machine: str, ip: str) -> str:
    return inside(lab, machine, ["curl", "-s", "--max-time", "2", f"http://{ip}/hostname"])


def answering(lab: Lab, ip: str) -> list[str]:
    """The Nodes that answer for an address on their network."""
    links = {
        name: json.loads(node.execute(lab.record, name, "ip", "-j", "link", "show", "eth0")) for name in NODES
    }
    names = {str(link[0]["address"]): name for name, link in links.items()}
    macs = json.loads(inside(lab, "gateway", [sys.executable, str(HERE / "arp_answers.py"), ip]))
    return [names.get(mac, mac) for mac in macs]


def owner(lab: Lab) -> str:
    rows = [row.split() for row in antctl(lab, "node-1", "get", "serviceexternalip").splitlines()[1:]]
    return next((row[4] for row in rows if row[1] == "ours" and row[4] != "<NONE>"), "")
