"""Objects that Antrea's programs created in the cluster, which an uninstallation does not delete.

Webhooks and APIServices are first: without their programs they make kube-apiserver refuse or delay requests.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from antrea.antctl.kube_proxy.plan import LABEL
from antrea.antctl.kube_proxy.takeover import NOTED
from antrea.antctl.remote import AGENT_INFOS
from antrea.antctl.request import ErrorResponse, ask
from antrea.antctl.upgrade import CRDS
from antrea.apis.memberlist import SECRET
from antrea.features.registry.annotations import WRITTEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from antrea.antctl.request import Server

MERGE: Final = "application/merge-patch+json"
GROUP: Final = "crd.antrea.io"
REGISTRATIONS: Final = (
    ("ValidatingWebhookConfiguration", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"),
    ("MutatingWebhookConfiguration", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"),
    ("APIService", "/apis/apiregistration.k8s.io/v1/apiservices"),
)  # fmt: skip
"""Kinds whose objects of Antrea have the label app=antrea."""
REPORTS: Final = (
    ("AntreaAgentInfo", AGENT_INFOS),
    ("AntreaControllerInfo", AGENT_INFOS.replace("antreaagentinfos", "antreacontrollerinfos")),
)
AGGREGATOR: Final = "flow-aggregator"
"""Namespace and label `app` of the flow aggregator."""
NAMED: Final = (
    ("Secret", "api/v1", "secrets", (SECRET, "antrea-controller-tls")),
    ("ConfigMap", "api/v1", "configmaps", ("antrea-ca", "antrea-cluster-identity")),
    ("Lease", "apis/coordination.k8s.io/v1", "leases", ("antrea-controller",)),
)
"""Objects in Antrea's Namespace, by kind; those that a user provided lack the label app=antrea."""
AGGREGATORS: Final = (
    ("Secret", "api/v1", "secrets", ("flow-aggregator-ca-tls", "flow-aggregator-client-tls")),
    ("ConfigMap", "api/v1", "configmaps", ("flow-aggregator-ca",)),
    ("Lease", "apis/coordination.k8s.io/v1", "leases", (AGGREGATOR,)),
)


class Left(NamedTuple):
    """An object that is left, and its removal."""

    subject: str
    remove: Callable[[], object] | None = None
    """None: it stays."""
    why: str = ""
    """Why it stays."""


class ClusterObjects:
    """Objects that are left in the cluster."""

    def __init__(self, server: Server, namespace: str) -> None:
        self._server, self._namespace = server, namespace

    def registrations(self) -> Iterator[Left]:
        """Yield webhook configurations and APIServices. Raises Failure."""
        for kind, path in REGISTRATIONS:
            for item in self._listed(path, {"labelSelector": "app=antrea"}):
                yield self._object(kind, path, item["metadata"]["name"])

    def of_node(self, node: Mapping[str, Any]) -> Iterator[Left]:
        """Yield the annotations that the agent of a Node wrote, and its AntreaAgentInfo. Raises Failure."""
        name, kind = node["metadata"]["name"], REPORTS[0]
        if names := sorted(WRITTEN.intersection(node["metadata"].get("annotations") or ())):
            body = {"metadata": {"annotations": dict.fromkeys(names)}}
            yield Left(
                f"annotations {', '.join(names)} of Node {name}",
                lambda: ask(self._server, f"/api/v1/nodes/{name}", {}, body, method="PATCH", content=MERGE),
            )
        if self._get(f"{kind[1]}/{name}"):
            yield self._object(*kind, name)

    def rest(self, nodes: Iterable[Mapping[str, Any]], *, crds: bool) -> Iterator[Left]:
        """Yield what belongs to no Node of the cluster; with `crds` the definitions, and so all objects of them. Raises Failure."""
        there = {node["metadata"]["name"] for node in nodes}
        for kind, path in REPORTS:
            for item in self._listed(path):
                if item["metadata"]["name"] not in there:
                    yield self._object(kind, path, item["metadata"]["name"])
        yield from self._named(NAMED, self._namespace, "antrea")
        yield from self._named(AGGREGATORS, AGGREGATOR, AGGREGATOR)
        takeover = f"/api/v1/namespaces/{self._namespace}/configmaps/{NOTED}"
        if self._get(takeover):
            yield Left(
                f"ConfigMap {self._namespace}/{NOTED}",
                why=f"kube-proxy was not given back, and runs only on Nodes with the label {LABEL} (docs/removal.md)",
            )
        if crds:
            for item in self._listed(CRDS):
                if item["spec"]["group"] == GROUP:
                    name = str(item["metadata"]["name"])
                    yield Left(f"CustomResourceDefinition {name}", partial(self._delete_definition, name))

    def _named(
        self, kinds: Iterable[tuple[str, str, str, tuple[str, ...]]], namespace: str, app: str
    ) -> Iterator[Left]:
        for kind, group, plural, names in kinds:
            path = f"/{group}/namespaces/{namespace}/{plural}"
            for name in names:
                item = self._get(f"{path}/{name}")
                if item and (item["metadata"].get("labels") or {}).get("app") == app:
                    yield self._object(kind, path, name, f"{namespace}/{name}")

    def _object(self, kind: str, path: str, name: str, shown: str = "") -> Left:
        return Left(f"{kind} {shown or name}", lambda: self._delete(f"{path}/{name}"))

    def _delete(self, path: str) -> None:
        """Delete an object; one that is gone is none. Raises Failure."""
        try:
            ask(self._server, path, {}, method="DELETE")
        except ErrorResponse as error:
            if error.status != 404:
                raise

    def _delete_definition(self, name: str) -> None:
        """Delete a definition. Its objects are deleted first, and the webhook that would convert them is gone. Raises Failure."""
        path = f"{CRDS}/{name}"
        body = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
        ask(self._server, path, {}, body, method="PATCH", content=MERGE)
        self._delete(path)

    def _get(self, path: str) -> Mapping[str, Any] | None:
        try:
            item: Mapping[str, Any] = ask(self._server, path, {})
        except ErrorResponse as error:
            if error.status == 404:
                return None
            raise
        return item

    def _listed(self, path: str, query: Mapping[str, str] | None = None) -> list[Any]:
        """Return all objects of a kind; none if kube-apiserver does not serve it. Raises Failure."""
        try:
            items: list[Any] = ask(self._server, path, query or {})["items"]
        except ErrorResponse as error:
            if error.status == 404:
                return []
            raise
        return items
