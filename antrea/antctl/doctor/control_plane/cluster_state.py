"""The control plane as kube-apiserver has it, which is all that the checks of this folder read."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from antrea.antctl.config_owner import ConfigOwner, config_owner
from antrea.antctl.doctor.refusal import refusal
from antrea.antctl.failure import Failure
from antrea.antctl.remote import AGENT_INFOS, CONTROLLER_INFO, DAEMON_SETS
from antrea.antctl.request import ErrorResponse, ask, date, text
from antrea.antctl.supportbundle.cluster import listed
from antrea.apis.network_policy_api.part import GROUP as POLICY_GROUP
from antrea.apis.shown import one_line
from antrea.decoding import decode_base64
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from antrea.antctl.request import Server

MAX_CONCURRENT: Final = 16
"""Requests at the same time."""
NAMESPACE: Final = "kube-system"
"""Where Antrea is installed, where nothing names another Namespace."""
AGENT: Final = "antrea-agent"
CONTROLLER: Final = "antrea-controller"
FLOW_AGGREGATOR: Final = "flow-aggregator"
"""Name of its Deployment, and of the Namespace that this is in."""
AGGREGATOR_CONFIG: Final = f"/api/v1/namespaces/{FLOW_AGGREGATOR}/configmaps/flow-aggregator-configmap"
DNS_DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/kube-system/deployments"
CERTIFICATE_SECRET: Final = "antrea-controller-tls"  # noqa: S105 (its name)
WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1"
NOTHING: Mapping[str, Any] = MappingProxyType({})


class ClusterDns(NamedTuple):
    """Service kube-dns: whether it selects Pods, how many of its Endpoints are ready, and the Deployments of these Pods."""

    has_selector: bool = False
    ready: int = 0
    deployments: Sequence[Mapping[str, Any]] = ()


class ClusterState(NamedTuple):
    """Objects by what they are; None: they could not be read, and `unseen` has the cause by the field's name."""

    now: float | None = 0.0
    """Unix seconds by the clock of kube-apiserver."""
    latency: float | None = 0.0
    """Seconds that kube-apiserver took for the fastest of the requests for single objects, with the connection."""
    namespace: str = NAMESPACE
    daemon_sets: Sequence[Mapping[str, Any]] | None = ()
    deployments: Sequence[Mapping[str, Any]] | None = ()
    pods: Sequence[Mapping[str, Any]] | None = ()
    nodes: Sequence[Mapping[str, Any]] | None = ()
    service_accounts: Sequence[Mapping[str, Any]] | None = ()
    """ServiceAccounts of Antrea's Namespace."""
    dns: ClusterDns | None = ClusterDns()
    events: Sequence[Mapping[str, Any]] | None = ()
    """Warnings of Antrea's Namespace; read only where a program is not as desired."""
    log_lines: Mapping[str, str] = NOTHING
    """The last line that a container printed before it ended, by Pod and container as `pod/container`."""
    refusals: Mapping[str, str] = NOTHING
    """Why the configuration was refused, by Pods of the controller that wait for its correction."""
    api_services: Sequence[Mapping[str, Any]] | None = ()
    webhooks: Mapping[str, Mapping[str, Any]] | None = NOTHING
    """Webhook configurations by name, each with its kind in lower case."""
    resources: frozenset[str] | None = frozenset()
    """Kinds of crd.antrea.io that kube-apiserver serves, as `version/plural`."""
    policy_resources: frozenset[str] | None = frozenset()
    """Kinds of the group POLICY_GROUP that kube-apiserver serves, in the same form."""
    agent_infos: Sequence[Mapping[str, Any]] | None = ()
    controller_info: Mapping[str, Any] | None = NOTHING
    """AntreaControllerInfo; empty: there is none."""
    authority: str | None = ""
    """PEM that clients verify the controller by, of ConfigMap antrea-ca; empty: there is none."""
    certificate: str | None = ""
    """PEM chain of the Secret with the controller's certificate; empty: there is none."""
    config: Mapping[str, str] | None = NOTHING
    """Files of the live ConfigMap antrea-config; empty: there is none."""
    aggregator_config: str | None = ""
    """flow-aggregator.conf of the live ConfigMap; read only where the flow aggregator is installed."""
    config_owner: ConfigOwner | None = None
    """The tool that applies this ConfigMap; None: users do."""
    releases: Sequence[Mapping[str, Any]] | None = ()
    """Secrets of Helm releases that are deployed in Antrea's Namespace."""
    unseen: Mapping[str, str] = NOTHING

    def agent_set(self) -> Mapping[str, Any] | None:
        """Return the DaemonSet of the agents."""
        return next((item for item in self.daemon_sets or () if name_of(item) == AGENT), None)

    def controller(self) -> Mapping[str, Any] | None:
        """Return the Deployment of the controller."""
        return next((item for item in self.deployments or () if name_of(item) == CONTROLLER), None)

    def pods_of(self, component: str) -> list[Mapping[str, Any]]:
        """Return the Pods of a component, without those that are being deleted."""
        return [
            pod
            for pod in self.pods or ()
            if pod["metadata"].get("labels", {}).get("component") == component
            and not pod["metadata"].get("deletionTimestamp")
        ]


def name_of(item: Mapping[str, Any]) -> str:
    """Return the name of an object."""
    return str(item["metadata"]["name"])


class Collector:
    """Reads fields of a ClusterState; a failure leaves its cause and does not keep the others from being read."""

    def __init__(self, kubernetes: Server) -> None:
        self._kubernetes = kubernetes
        self.unseen: dict[str, str] = {}
        self.fastest = math.inf
        """Seconds of the fastest request for a single object."""

    def read(self, readers: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """Return what the readers return, by field; None for those that failed. They run at the same time."""
        with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
            running = {field: pool.submit(self._read, field, reader) for field, reader in readers.items()}
            return {field: future.result() for field, future in running.items()}

    def _read(self, field: str, reader: Callable[[], Any]) -> Any:
        try:
            return reader()
        except Failure as error:
            self.unseen[field] = one_line(error.format_message())
        except (KeyError, ValueError) as error:
            self.unseen[field] = one_line(f"the answer cannot be read: {error!r}")
        return None

    def all(self, path: str, **query: str) -> list[dict[str, Any]]:
        """Return the objects of a list. Raises Failure."""
        return list(listed(self._kubernetes, path, **query))

    def get(self, path: str) -> Any:
        """Return an object; an empty one stands for none of that name. Raises Failure."""
        begin = time.monotonic()
        try:
            return ask(self._kubernetes, path, {})
        except ErrorResponse as error:
            if error.status != 404:
                raise
            return {}
        finally:
            # also of a request that was given up: a server that answers none in time is not a fast one
            self.fastest = min(self.fastest, time.monotonic() - begin)

    def now(self) -> float:
        """Return the time of kube-apiserver. Raises Failure, ValueError."""
        return parsedate_to_datetime(date(self._kubernetes, "/version")).timestamp()

    def log_line(self, namespace: str, pod: str, container: str) -> str:
        """Return the last line of a container that ended. Raises Failure."""
        query = f"container={container}&previous=true&tailLines=20"
        log = text(self._kubernetes, f"/api/v1/namespaces/{namespace}/pods/{pod}/log?{query}")
        return next((line for line in reversed(log.splitlines()) if line.strip()), "")


def collect(kubernetes: Server) -> ClusterState:
    """Return the control plane as of now; what cannot be read is in `unseen`. Where no program can be read, nothing else is."""
    reader = Collector(kubernetes)
    lists = reader.read(_programs(reader))
    if lists["daemon_sets"] is lists["deployments"] is lists["pods"] is None:
        # the same cause keeps all else from being read, and each try may take the time of a request
        return ClusterState(**lists, unseen=reader.unseen)
    namespace = antrea_namespace(lists)
    programs = own_programs(lists, namespace)
    fields = reader.read(_registrations(reader, namespace, programs))
    config_map = fields["config"]
    if config_map is not None:
        fields |= {
            "config": config_map.get("data", {}),
            "config_owner": config_owner(config_map.get("metadata", {})),
        }
    state = ClusterState(namespace=namespace, **programs, **fields)
    refusals = waiting_refusals(reader, kubernetes, state)
    log_lines = _log_lines(reader, state)
    latency = reader.fastest if math.isfinite(reader.fastest) else 0.0
    return state._replace(latency=latency, log_lines=log_lines, refusals=refusals, unseen=reader.unseen)


def _programs(reader: Collector) -> dict[str, Callable[[], Any]]:
    """Return readers of the fields that are read first: programs in all Namespaces, and what names that of Antrea."""
    antrea = {"labelSelector": "app=antrea"}
    return {
        "daemon_sets": lambda: reader.all(DAEMON_SETS, **antrea),
        "deployments": lambda: reader.all(
            "/apis/apps/v1/deployments", labelSelector="app in (antrea,flow-aggregator)"
        ),
        "pods": lambda: reader.all("/api/v1/pods", **antrea),
        "api_services": lambda: [
            item for item in reader.all("/apis/apiregistration.k8s.io/v1/apiservices")
            if item["spec"].get("service") and item["spec"]["group"].endswith(".antrea.io")
        ],
        "controller_info": lambda: reader.get(CONTROLLER_INFO),
    }  # fmt: skip


def _registrations(
    reader: Collector, namespace: str, programs: Mapping[str, Any]
) -> dict[str, Callable[[], Any]]:
    """Return readers of the other fields; `config` is the whole ConfigMap."""
    scope = f"/api/v1/namespaces/{namespace}"
    aggregator = any(name_of(item) == FLOW_AGGREGATOR for item in programs["deployments"] or ())
    return {
        "now": reader.now,
        "nodes": lambda: reader.all("/api/v1/nodes"),
        "service_accounts": lambda: reader.all(f"{scope}/serviceaccounts"),
        "dns": lambda: _cluster_dns(reader),
        "events": lambda: reader.all(f"{scope}/events", fieldSelector="type=Warning"),
        "webhooks": lambda: {
            name_of(item): {**item, "kind": plural[:-1]}
            for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
            for item in reader.all(f"{WEBHOOKS}/{plural}")
        },
        "resources": lambda: _resources(reader, "crd.antrea.io"),
        "policy_resources": lambda: _resources(reader, POLICY_GROUP),
        "agent_infos": lambda: reader.all(AGENT_INFOS),
        "authority": lambda: str(reader.get(f"{scope}/configmaps/antrea-ca").get("data", {}).get("ca.crt", "")),
        "certificate": lambda: _certificate(reader.get(f"{scope}/secrets/{CERTIFICATE_SECRET}")),
        "config": lambda: reader.get(f"{scope}/configmaps/antrea-config"),
        "aggregator_config": lambda: _aggregator_config(reader.get(AGGREGATOR_CONFIG) if aggregator else {}),
        "releases": lambda: reader.all(
            f"{scope}/secrets", labelSelector="owner=helm,status=deployed", fieldSelector="type=helm.sh/release.v1",
        ),
    }  # fmt: skip


def read_reports(kubernetes: Server, state: ClusterState) -> ClusterState:
    """Return the state with what agents report now."""
    reader = Collector(kubernetes)
    reports = reader.read({"now": reader.now, "agent_infos": lambda: reader.all(AGENT_INFOS)})
    return state._replace(**reports, unseen={**state.unseen, **reader.unseen})


def antrea_namespace(lists: Mapping[str, Any]) -> str:
    """Return the Namespace of Antrea's programs: by its APIs or the controller's report, which no user of a Namespace can write, else by names."""
    for item in lists["api_services"] or ():
        return str(item["spec"]["service"]["namespace"])
    if reported := (lists["controller_info"] or {}).get("podRef", {}).get("namespace"):
        return str(reported)
    for field, name in (("daemon_sets", AGENT), ("deployments", CONTROLLER)):
        for item in lists[field] or ():
            if name_of(item) == name:
                return str(item["metadata"]["namespace"])
    return NAMESPACE


def own_programs(lists: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """Return the lists without objects of other Namespaces, whose users can give their Pods the labels of agents."""

    def is_own(item: Mapping[str, Any]) -> bool:
        at = str(item["metadata"]["namespace"])
        return at == namespace or (name_of(item) == at == FLOW_AGGREGATOR)

    namespaced = ("daemon_sets", "deployments", "pods")
    return {
        field: [item for item in items if is_own(item)]
        if field in namespaced and items is not None
        else items
        for field, items in lists.items()
    }


def _resources(reader: Collector, group: str) -> frozenset[str]:
    """Return what discovery has of an API group. Raises Failure."""
    versions = [row["version"] for row in reader.get(f"/apis/{group}").get("versions", ())]
    lists = {version: reader.get(f"/apis/{group}/{version}").get("resources", ()) for version in versions}
    return frozenset(f"{version}/{row['name']}" for version, rows in lists.items() for row in rows)


def _cluster_dns(reader: Collector) -> ClusterDns:
    """Return what there is of the cluster's DNS. Raises Failure."""
    service = reader.get("/api/v1/namespaces/kube-system/services/kube-dns")
    if not (service.get("spec") or {}).get("selector"):
        return ClusterDns()
    slices = reader.all(
        "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices",
        labelSelector="kubernetes.io/service-name=kube-dns",
    )
    ready = sum(
        (row.get("conditions") or {}).get("ready") is not False
        for item in slices
        for row in item.get("endpoints") or ()
    )
    deployments = () if ready else reader.all(DNS_DEPLOYMENTS, labelSelector="k8s-app=kube-dns")
    return ClusterDns(True, ready, deployments)


def _aggregator_config(config_map: Mapping[str, Any]) -> str:
    return str((config_map.get("data") or {}).get("flow-aggregator.conf", ""))


def _certificate(secret: Mapping[str, Any]) -> str:
    """Return the chain of a TLS Secret. Raises ValueError."""
    try:
        return decode_base64(secret.get("data", {}).get("tls.crt", ""), "tls.crt").decode(errors="replace")
    except Invalid as error:
        raise ValueError(str(error)) from error


def _log_lines(reader: Collector, state: ClusterState) -> dict[str, str]:
    """Return the last lines of containers that end again and again."""
    places = [
        (pod, status["name"])
        for pod in state.pods or ()
        for status in statuses(pod)
        if waiting(status).get("reason") == "CrashLoopBackOff"
    ]
    lines = reader.read({
        f"{name_of(pod)}/{container}": partial(
            reader.log_line, pod["metadata"]["namespace"], name_of(pod), container
        )
        for pod, container in places[:MAX_CONCURRENT]
    })  # fmt: skip
    for place in lines:
        reader.unseen.pop(place, None)  # a log that has been rotated away
    return {place: line for place, line in lines.items() if line}


def waiting_refusals(reader: Collector, kubernetes: Server, state: ClusterState) -> dict[str, str]:
    """Return causes by Pods of the controller that run and are not Ready, asked for through the proxy of kube-apiserver."""
    waits = {
        name_of(pod): next(
            (port["containerPort"] for port in container.get("ports", ()) if port.get("name") == "api"), 0
        )
        for pod in state.pods_of(CONTROLLER)
        if any(row.get("type") == "Ready" and row.get("status") != "True" for row in pod.get("status", {}).get("conditions", ()))
        and all("running" in status.get("state", {}) for status in statuses(pod))
        for container in pod["spec"].get("containers", ())
    }  # fmt: skip
    scope = f"/api/v1/namespaces/{state.namespace}/pods"
    refusals = reader.read({
        name: partial(refusal, kubernetes, f"{scope}/https:{name}:{port}/proxy") for name, port in waits.items()
    })  # fmt: skip
    for name in refusals:
        reader.unseen.pop(name, None)  # it does not answer, which its own check names
    return {name: why for name, why in refusals.items() if why}


def statuses(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the states of a Pod's containers, init containers first."""
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def waiting(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return why a container waits; empty: it does not."""
    state: Mapping[str, Any] = status.get("state", {}).get("waiting") or {}
    return state
