"""Declaration of a kind, and the CustomResourceDefinition that comes from it.

Source: https://kubernetes.io/docs/reference/kubernetes-api/extend-resources/custom-resource-definition-v1/
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from antrea.apis.schema import Schema, schema_of

GROUP = "crd.antrea.io"
SERVICE = {"name": "antrea", "namespace": "kube-system"}
"""Where conversion webhooks are; a chart cannot set values in CRDs."""
Manifest: TypeAlias = dict[str, Any]


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """One column of `kubectl get`; with a priority it is shown by -o wide only."""

    name: str
    type: Literal["string", "integer", "number", "boolean", "date"]
    path: str = msgspec.field(name="jsonPath")
    description: str = ""
    priority: int = 0
    format: str = ""


class Version(msgspec.Struct, frozen=True):
    """A kind in one version, all of which are served."""

    name: str
    kind: type[msgspec.Struct]
    columns: tuple[Column, ...] = ()
    """In order; with none, kubectl shows NAME and AGE."""
    storage: bool = True
    status: bool = False
    """Whether the status is a subresource: written apart, by programs."""
    deprecation: str = ""
    """The warning that users of this version get."""
    only_name: str = ""
    """The one name that objects can have."""


class Crd(msgspec.Struct, frozen=True):
    """One CustomResourceDefinition."""

    plural: str
    short: tuple[str, ...]
    scope: Literal["Cluster", "Namespaced"]
    versions: tuple[Version, ...]
    """Oldest first."""
    gates: tuple[str, ...] = ()
    """Feature gates that this kind is for; it has use while any of them is on."""
    labels: dict[str, str] = {}
    conversion: str = ""
    """Path of the webhook that converts between the versions."""
    group: str = GROUP
    annotations: dict[str, str] = {}

    @property
    def name(self) -> str:
        return f"{self.plural}.{self.group}"

    @property
    def kind(self) -> str:
        return self.versions[0].kind.__name__

    @property
    def file(self) -> str:
        """Upstream's name of the file; of a kind of another API, that of its project."""
        return f"{self.kind.lower()}.yaml" if self.group == GROUP else f"{self.group}_{self.plural}.yaml"


ANTREA = {"app": "antrea"}
CONVERTED = {**ANTREA, "served-by": "antrea-controller"}
"""The controller puts its certificate authority into a CRD with these labels, which must have a conversion webhook."""
AGE = Column("Age", "date", ".metadata.creationTimestamp")
POOL_COLUMNS = (
    Column("Total", "integer", ".status.usage.total", "Addresses that the pool has."),
    Column("Used", "integer", ".status.usage.used", "Addresses that are taken."),
    AGE,
)


def manifest(crd: Crd) -> Manifest:
    """The object for the API server."""
    names: Manifest = {"plural": crd.plural, "singular": crd.kind.lower(), "kind": crd.kind}
    if crd.short:
        names["shortNames"] = [*crd.short]
    spec: Manifest = {
        "group": crd.group,
        "scope": crd.scope,
        "names": names,
        "versions": [_version(version) for version in crd.versions],
    }
    if crd.conversion:
        client = {"service": {**SERVICE, "path": crd.conversion}}
        webhook = {"conversionReviewVersions": ["v1", "v1beta1"], "clientConfig": client}
        spec["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    metadata: Manifest = {"name": crd.name}
    if crd.labels:
        metadata["labels"] = {**crd.labels}
    if crd.annotations:
        metadata["annotations"] = {**crd.annotations}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


def schema(version: Version) -> Schema:
    """The schema of one version; what every object has is the API server's affair."""
    schema = schema_of(version.kind)
    properties = dict(schema["properties"])
    del properties["metadata"]
    if version.only_name:
        name = {"type": "string", "pattern": f"^{version.only_name}$"}
        properties["metadata"] = {"type": "object", "properties": {"name": name}}
    return {**schema, "properties": properties}


def _version(version: Version) -> Manifest:
    manifest: Manifest = {"name": version.name, "served": True, "storage": version.storage}
    if version.deprecation:
        manifest |= {"deprecated": True, "deprecationWarning": version.deprecation}
    manifest["schema"] = {"openAPIV3Schema": schema(version)}
    if version.columns:
        manifest["additionalPrinterColumns"] = [msgspec.to_builtins(column) for column in version.columns]
    if version.status:
        manifest["subresources"] = {"status": {}}
    return manifest
