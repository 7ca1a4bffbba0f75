"""Our real controller program beside the lab's API server, with all that the API server needs to find and trust it."""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import yaml
from admission_object import decided
from api_client import ApiClient

from antrea.errors import Unavailable
from antrea.features.registry.api_resources import RESOURCES
from antrea.features.registry.webhook_configuration import configurations
from antrea.features.registry.webhooks import WEBHOOKS
from lab import cluster, namespace
from lab import control_plane as plane
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lab.cluster import Lab

ROOT = Path(__file__).parents[2]
PORT = 10349
ACCOUNT = "antrea-controller"
DISCOVERY = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList"
LABELS = {"app": "antrea", "served-by": "antrea-controller"}
GROUPS = sorted({(row.group, row.version) for row in RESOURCES})


def rule(groups: Iterable[str], resources: Iterable[str], verbs: str) -> dict[str, Any]:
    return {"apiGroups": [*groups], "resources": [*resources], "verbs": verbs.split()}


WITH_STATUS = ("clustergroups", "clusternetworkpolicies", "groups", "networkpolicies")
RULES = (
    rule(["crd.antrea.io"], ["*"], "get list watch"),
    rule(["crd.antrea.io"], ["tiers", "antreacontrollerinfos"], "get create patch"),
    rule(["crd.antrea.io"], [f"{name}/status" for name in WITH_STATUS], "patch"),
    rule(["crd.antrea.io"], ["antreaagentinfos"], "create delete"),
    rule(["crd.antrea.io"], ["egresses", "egresses/status", "externalippools/status"], "patch"),
    rule([""], ["namespaces", "pods", "nodes", "services"], "get list watch"),
    rule(["networking.k8s.io"], ["networkpolicies"], "list watch"),
    rule(["policy.networking.k8s.io"], ["*"], "get list watch patch"),
    rule(
        ["admissionregistration.k8s.io"],
        ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        "get list watch patch",
    ),
    rule(["apiregistration.k8s.io"], ["apiservices"], "get list watch patch"),
    rule(["apiextensions.k8s.io"], ["customresourcedefinitions"], "get list watch patch"),
    rule([""], ["configmaps", "secrets"], "get list watch create patch"),
    rule([""], ["events"], "create"),
    rule(["coordination.k8s.io"], ["leases"], "get list watch create patch"),
)
"""What the program may do here; the chart narrows it to names."""


def objects(lab: Lab) -> list[dict[str, Any]]:
    """Service, endpoint, webhooks, and what our ServiceAccount may do."""
    system = {"namespace": "kube-system"}
    subjects = [{"kind": "ServiceAccount", "name": ACCOUNT, **system}]
    rbac = "rbac.authorization.k8s.io"

    def binding(kind: str, name: str, role: str, meta: dict[str, str], role_kind: str) -> dict[str, Any]:
        return {
            "apiVersion": f"{rbac}/v1",
            "kind": kind,
            "metadata": {"name": name, **meta},
            "roleRef": {"apiGroup": rbac, "kind": role_kind, "name": role},
            "subjects": subjects,
        }

    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, **system}},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": ACCOUNT},
            "rules": list(RULES),
        },
        binding("ClusterRoleBinding", ACCOUNT, ACCOUNT, {}, "ClusterRole"),
        binding("ClusterRoleBinding", f"{ACCOUNT}-reviews", "system:auth-delegator", {}, "ClusterRole"),
        binding(
            "RoleBinding", f"{ACCOUNT}-trust", "extension-apiserver-authentication-reader", system, "Role"
        ),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "antrea", **system},
            "spec": {"ports": [{"port": 443, "targetPort": PORT, "protocol": "TCP"}]},
        },
        endpoint(lab, PORT),
        *configurations(WEBHOOKS, "kube-system"),
    ]


def endpoint(lab: Lab, port: int) -> dict[str, Any]:
    """What makes the Service lead to our process at `port`."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"antrea-test-{port}",
            "labels": {"kubernetes.io/service-name": "antrea"},
            "namespace": "kube-system",
        },
        "addressType": "IPv4",
        "ports": [{"name": "", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [plane.endpoint(lab.topology)]}],
    }


def api_services() -> list[dict[str, Any]]:
    """What makes the API server send requests for our groups to us."""
    return [
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{version}.{group}", "labels": LABELS},
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "service": {"name": "antrea", "namespace": "kube-system"},
            },
        }
        for group, version in GROUPS
    ]


def prepare(lab: Lab) -> None:
    """Our CRDs, and `objects`."""
    for manifest in ("antrea-crds.yml", "network-policy-api-crds.yml"):
        lab.api.apply((ROOT / "build/yamls" / manifest).read_text())
    lab.api.apply(yaml.safe_dump_all(objects(lab)))


def withdraw(lab: Lab) -> None:
    """What would lead the API server to a program that is gone."""
    kinds = {
        "apiservice": [row["metadata"]["name"] for row in api_services()],
        "validatingwebhookconfiguration": [],
        "mutatingwebhookconfiguration": [],
    }
    for row in configurations(WEBHOOKS, "kube-system"):
        kinds[row["kind"].lower()].append(row["metadata"]["name"])
    for kind, names in kinds.items():
        lab.api.kubectl("delete", kind, "--ignore-not-found", *names)


@contextlib.contextmanager
def controller_beside(
    lab: Lab, directory: Path, environ: Mapping[str, str] = MappingProxyType({})
) -> Iterator[ControllerProcess]:
    """Our controller program beside the API server, its APIs and webhooks in use, with `environ` besides its own."""
    prepare(lab)
    running = ControllerProcess(lab, directory, environ=environ)
    try:
        running.wait()
        yield running
    finally:
        running.stop()
        withdraw(lab)


class ControllerProcess:
    """The program in the control plane's network, as its own ServiceAccount; files are in `directory`."""

    def __init__(
        self,
        lab: Lab,
        directory: Path,
        *,
        port: int = PORT,
        elect: bool = False,
        environ: Mapping[str, str] = MappingProxyType({}),
        **keys: object,
    ) -> None:
        """`keys` of antrea-controller.conf besides those it needs; `elect`: it is one of several replicas."""
        self.lab = lab
        self.port = port
        self.log = directory / "controller.log"
        self.token_file = directory / "token"
        self.directory = directory
        (directory / "antrea-controller.conf").write_text(
            json.dumps({"apiPort": port, "clientConnection": {"kubeconfig": self._kubeconfig()}, **keys})
        )
        words = [sys.executable, "-P", "-m", "antrea.controller.main", "--v=2"]
        words += ["--config", str(directory / "antrea-controller.conf")]
        words += ["--token-file", str(self.token_file), "--certificate-dir", str(directory / "certificates")]
        words += ["--leader-elect"] if elect else []
        about = {"POD_NAME": f"antrea-controller-{port - PORT}", "NODE_NAME": "n1"}
        about |= {"POD_NAMESPACE": "kube-system", "POD_IP": plane.endpoint(lab.topology)}
        command = ["env", *(f"{key}={value}" for key, value in {**about, **environ}.items()), *words]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                cluster.enter(lab, "control", command), stdout=out, stderr=out, cwd=ROOT
            )

    def _kubeconfig(self) -> str:
        token = self.lab.api.kubectl("create", "token", ACCOUNT, "-n", "kube-system").strip()
        found = yaml.safe_load(plane.kubeconfig(self.lab.record).read_text())
        found["users"][0]["user"] = {"token": token}
        path = self.directory / "kubeconfig"
        path.write_text(yaml.safe_dump(found))
        return str(path)

    def available(self) -> bool:
        """Whether the API server reaches all our groups and has read what is in them, and policies are computed."""
        with contextlib.closing(ApiClient(self.lab)) as client:
            found = client.call("GET", "/apis", accept=DISCOVERY).body
            computed = client.call("GET", "/apis/controlplane.antrea.io/v1beta2/networkpolicies").status
        fresh = {
            (item["metadata"]["name"], version["version"])
            for item in found["items"]
            for version in item["versions"]
            if version.get("freshness") == "Current" and version.get("resources")
        }
        return computed == 200 and all(group in fresh for group in GROUPS)

    def certified(self) -> bool:
        """Whether the program serves the certificate that its Secret has."""
        netns = namespace.path(self.lab.record, self.lab.topology.control_plane.name)
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        address = (plane.endpoint(self.lab.topology), self.port)
        try:
            with tls.wrap_socket(namespace.connect(netns, address, seconds=5)) as served:
                return b"antrea.kube-system.svc" in (served.getpeercert(binary_form=True) or b"")
        except OSError:
            return False

    def wait(self) -> None:
        """Until it serves; only then is the API server told, which otherwise tries in growing pauses."""
        try:
            wait_for("our certificate", self.certified, seconds=60, step=0.3)
            self.lab.api.apply(yaml.safe_dump_all(api_services()))
            wait_for("our APIs to be available", self.available, seconds=60, step=0.3)
            wait_for("our webhooks to decide", lambda: decided(self.lab), seconds=60, step=0.3)
        except Unavailable as error:
            error.add_note(self.log.read_text()[-4000:])
            raise

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def curl(self, *arguments: str, path: str = "/", seconds: float = 20) -> str:
        """Ask the program itself, from where the API server is."""
        url = f"https://{plane.endpoint(self.lab.topology)}:{self.port}{path}"
        netns = namespace.path(self.lab.record, self.lab.topology.control_plane.name)
        words = ["curl", "-sk", "--max-time", str(seconds), *arguments, url]
        done = subprocess.run(
            namespace.inside(netns, words), capture_output=True, text=True, check=False, timeout=seconds + 5
        )
        return done.stdout
