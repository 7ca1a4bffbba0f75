"""A cluster that is well as kube-apiserver has it, and changes of it, for tests of the doctor's control plane."""

from __future__ import annotations

import base64
import copy
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from antrea.antctl.doctor.control_plane.checks import findings
from antrea.antctl.doctor.control_plane.cluster_state import ClusterState
from antrea.antctl.doctor.control_plane.registration import EXPECTED_APIS, EXPECTED_WEBHOOKS, GROUP
from antrea.features.registry.crds import CRDS
from antrea.outside.tls import authority

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = float(int(time.time()))
EDIT = "kubectl -n kube-system edit configmap antrea-config"
UNDO = "kubectl -n kube-system rollout undo daemonset/antrea-agent"
CREATE = "kubectl create -f antrea.yml  # of this release; it leaves what exists as it is (AlreadyExists)"
MADE = authority.make(("antrea",), ("127.0.0.1",))
OTHER = authority.make(("antrea",), ("127.0.0.1",))
RESOURCES = frozenset(
    f"{version.name}/{crd.plural}" for crd in CRDS if crd.group == GROUP for version in crd.versions
)


def at(seconds: float) -> str:
    """A time so many seconds ago."""
    return datetime.fromtimestamp(NOW - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def encoded(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()


def conditions(**states: str) -> list[dict[str, str]]:
    return [{"type": kind, "status": status} for kind, status in states.items()]


def pod(name: str, node: str, component: str = "antrea-agent") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "labels": {"component": component},
            "creationTimestamp": at(610),
        },
        "spec": {"nodeName": node},
        "status": {
            "conditions": conditions(Ready="True"),
            "containerStatuses": [
                {"name": component, "state": {"running": {"startedAt": at(600)}}, "lastState": {}}
            ],
        },
    }


def owner(name: str, **status: Any) -> dict[str, Any]:
    """A Deployment or a DaemonSet with one container."""
    template = {"spec": {"containers": [{"name": name, "image": "antrea:v1"}]}}
    return {
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"replicas": 1, "template": template},
        "status": status,
    }


def node(name: str) -> dict[str, Any]:
    """The Node n1, n2 and so on, each with its own address and podCIDR, the younger the higher its number."""
    number = int(name.removeprefix("n"))
    meta = {"name": name, "labels": {"kubernetes.io/os": "linux"}, "creationTimestamp": at(9000 - number)}
    return {
        "metadata": meta,
        "spec": {"podCIDRs": [f"10.10.{number}.0/24"]},
        "status": {
            "conditions": conditions(Ready="True"),
            "addresses": [{"type": "InternalIP", "address": f"192.0.2.{number}"}],
        },
    }


def account(name: str, age: float = 900) -> dict[str, Any]:
    """A ServiceAccount that was created so many seconds ago."""
    return {"metadata": {"name": name, "creationTimestamp": at(age)}}


def info(name: str) -> dict[str, Any]:
    kinds = ("AgentHealthy", "OVSDBConnectionUp", "OpenflowConnectionUp", "ControllerConnectionUp")
    rows = [{"type": kind, "status": "True", "lastHeartbeatTime": at(30)} for kind in kinds]
    return {"metadata": {"name": name}, "version": "v1", "agentConditions": rows}


def healthy() -> ClusterState:
    ca = MADE.certificate_pem
    return ClusterState(
        now=NOW,
        daemon_sets=[owner("antrea-agent")],
        deployments=[owner("antrea-controller", readyReplicas=1)],
        pods=[pod("a-1", "n1"), pod("a-2", "n2"), pod("c", "n1", "antrea-controller")],
        nodes=[node("n1"), node("n2")],
        service_accounts=[account("antrea-agent"), account("antrea-controller")],
        api_services=[
            {
                "metadata": {"name": name},
                "spec": {"caBundle": encoded(ca)},
                "status": {"conditions": conditions(Available="True")},
            }
            for name in EXPECTED_APIS
        ],
        webhooks={
            name: {"webhooks": [{"name": "w", "clientConfig": {"caBundle": encoded(ca)}}]}
            for name in EXPECTED_WEBHOOKS
        },
        resources=RESOURCES,
        agent_infos=[info("n1"), info("n2")],
        controller_info={
            "version": "v1",
            "nodeRef": {"name": "n1"},
            "controllerConditions": [
                {"type": "ControllerHealthy", "status": "True", "lastHeartbeatTime": at(30)}
            ],
        },
        authority=ca,
        certificate=ca,
        config={"antrea-agent.conf": "a: 1"},
    )


def changed(state: ClusterState, field: str, change: Callable[[Any], object]) -> ClusterState:
    """The state with a copy of a field that `change` has changed."""
    value = copy.deepcopy(getattr(state, field))
    change(value)
    return state._replace(**{field: value})


def status_of(*states: dict[str, Any], **container: Any) -> dict[str, Any]:
    """The status of a Pod that is not Ready and whose container is in this state."""
    return {
        "conditions": [{"type": "Ready", "status": "False"}, *states],
        "containerStatuses": [{"name": "antrea-agent", "state": {}, "lastState": {}, **container}],
    }


def with_pod(status: dict[str, Any], *, generation: str = "1", place: int = 1) -> ClusterState:
    """A cluster with this status of a Pod, the agent's on n2 by default."""
    state = changed(healthy(), "pods", lambda pods: pods[place].update(status=status))
    key = "deprecated.daemonset.template.generation"
    return changed(
        state, "daemon_sets", lambda rows: rows[0]["metadata"].update(annotations={key: generation})
    )


def rows(state: ClusterState) -> list[tuple[str, str, str, str]]:
    return [(row.node, row.check, row.finding, row.repair) for row in findings(state)]
