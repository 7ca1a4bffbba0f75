"""`antctl check cluster`: whether Antrea can be installed here. parity: pkg/antctl/raw/check/cluster"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from antrea.antctl.check.report import Choice, Undecided, run_tests
from antrea.antctl.check.workload import CONTROL_PLANE, IDLE, deployment, image_of_agents
from antrea.antctl.failure import Failure
from antrea.antctl.pod_exec import Done, run_in_pod
from antrea.antctl.request import ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.antctl.check.room import Room

NAME = "cluster-checker"
LABELS = {"app": "antrea", "component": NAME, "name": NAME}
OLDEST = (1, 23, 0)
OURS = "10-antrea.conflist"
ANTREA = "kube-system"
"""Namespace in which Antrea may be installed already."""
CONTROL_PLANE_LABELS = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
BUILT_IN = (
    "grep -q openvswitch.ko /lib/modules/$(uname -r)/modules.builtin || test -d /sys/module/openvswitch"
)


class Uncertain(Undecided):
    """It may matter, or not."""

    verdict = "uncertain"


class Checker:
    """The Pod of the check, on the network and the kernel of a Node that may have no Pod network yet."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self._pod: dict[str, Any] = {}

    def deploy(self, image: str) -> None:
        """Raises Failure if the Pod does not run in time."""
        self.room.create(NAME, "pre installation")
        self.room.report.print_line("Creating Deployment")
        self.room.make("apis/apps/v1", "deployments", body(image))
        self.room.wait_deployment(NAME)
        pods = self.room.pods(f"name={NAME}")
        if not pods:
            raise Failure(f"no Pod found for Deployment {NAME}")
        self._pod = pods[0]

    def run(self, *command: str) -> Done:
        """In the Pod. Raises Failure."""
        return run_in_pod(self.room.server, f"{self.room.namespace}/{self._pod['metadata']['name']}", command)

    @property
    def node(self) -> str:
        return str(self._pod["spec"]["nodeName"])


def body(image: str) -> dict[str, Any]:
    """The Deployment of the check."""
    places = {"cni-conf": "/etc/cni/net.d", "lib-modules": "/lib/modules"}
    tolerated = [
        {**CONTROL_PLANE, "key": key} for key in (*CONTROL_PLANE_LABELS, "node.kubernetes.io/not-ready")
    ]
    return deployment(
        *(NAME, image, LABELS, IDLE),
        container={
            "volumeMounts": [{"name": name, "mountPath": path} for name, path in places.items()],
            "securityContext": {"capabilities": {"add": ["SYS_MODULE"]}},
        },
        hostNetwork=True,
        tolerations=tolerated,
        volumes=[{"name": name, "hostPath": {"path": path}} for name, path in places.items()],
        nodeSelector={"kubernetes.io/os": "linux"},
    )


def kubernetes_version(checker: Checker) -> None:
    """Raises Failure for one that is too old."""
    version = str(ask(checker.room.server, "/version", {})["gitVersion"])
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    if not match:
        raise Failure(f'error parsing server version: invalid version "{version}"')
    if tuple(int(part or 0) for part in match.groups()) < OLDEST:
        raise Failure(f"Kubernetes min version required: v{'.'.join(map(str, OLDEST))}")
    checker.room.report.print_line(
        f"Kubernetes server version is compatible with Antrea. Kubernetes version: {version}"
    )


def open_vswitch_loadable(checker: Checker) -> None:
    """Raises Failure if the kernel cannot have the module openvswitch."""
    report = checker.room.report
    if checker.run("sh", "-c", BUILT_IN).code == 0:
        report.print_line("The kernel module openvswitch is built-in or loaded")
        return
    report.print_line(
        "The kernel module openvswitch is not built-in. Running modprobe command to load the module."
    )
    done = checker.run("modprobe", "openvswitch")
    if done.code or done.stderr:
        why = done.stderr.strip() or done.stdout.strip() or f"exit code {done.code}"
        raise Failure(
            f"failed to load the OVS kernel module: {why}, try running 'modprobe openvswitch' on your Nodes; "
            "a kernel without that module needs the value ovs.datapathType: netdev (docs/datapaths.md)"
        )
    report.print_line("openvswitch kernel module loaded successfully")


def cni_existence(checker: Checker) -> None:
    """Raises Uncertain if another CNI plugin would come first."""
    done = checker.run("ls", "-1", "/etc/cni/net.d")
    if done.code:
        raise Failure(f"/etc/cni/net.d cannot be listed: {done.stderr.strip()}")
    # hidden files and others than these are none that runtimes read
    files = sorted(name for name in done.stdout.split() if name.endswith((".conf", ".conflist", ".json")))
    report = checker.room.report
    if not files:
        report.print_line(f"No files present in /etc/cni/net.d in Node {checker.node}")
    elif files[0] < OURS:
        raise Uncertain(
            "another CNI configuration file with higher priority than Antrea's CNI configuration file found: "
            f"{files[0]}; this may be expected if networkPolicyOnly mode is enabled"
        )
    elif files[0] != OURS:
        report.print_line(
            f"Another CNI configuration file found: {files[0]} with Antrea having higher precedence"
        )
    else:
        report.print_line(f"Antrea's CNI configuration file already present: {files[0]}")


def control_plane_nodes(checker: Checker) -> None:
    """Raises Uncertain if the API server may be out of the Pod network's reach."""
    for label in CONTROL_PLANE_LABELS:
        if ask(checker.room.server, "/api/v1/nodes", {"labelSelector": label, "limit": "1"})["items"]:
            checker.room.report.print_line("control-plane Nodes were found in the cluster.")
            return
    raise Uncertain(
        "no control-plane Nodes were found; if installing Antrea in encap mode, some K8s functionalities "
        "(API aggregation, apiserver proxy, admission controllers) may be impacted"
    )


TESTS: dict[str, Callable[[Checker], None]] = {
    "check-k8s-version": kubernetes_version,
    "check-if-openvswitch-is-loadable": open_vswitch_loadable,
    "check-cni-existence": cni_existence,
    "check-control-plane-nodes-availability": control_plane_nodes,
}


def run(room: Room, image: str, choice: Choice) -> None:
    """The tests that are asked for. Raises Failure if one failed."""
    chosen = choice.of_tests(TESTS)
    checker = Checker(room)
    checker.deploy(image or image_of_agents(room.server, ANTREA))
    run_tests(room.report, chosen, checker, Uncertain)
