"""Names of the aggregated API's structs in OpenAPI documents: upstream's, which clients may know."""

from __future__ import annotations

from typing import Any

from antrea.apis import controlplane, controlplane_report, meta, stats, system

_UPSTREAM = "io.antrea.antrea.pkg.apis"
_PACKAGES = {
    controlplane.__name__: f"{_UPSTREAM}.controlplane.v1beta2",
    controlplane_report.__name__: f"{_UPSTREAM}.controlplane.v1beta2",
    stats.__name__: f"{_UPSTREAM}.stats.v1alpha1",
    system.__name__: f"{_UPSTREAM}.crd.v1beta1",
    meta.__name__: "io.k8s.apimachinery.pkg.apis.meta.v1",
}
_OWN: dict[type[Any], str] = {
    system.SupportBundle: f"{_UPSTREAM}.system.v1beta1.SupportBundle",
    system.ObjectReference: "io.k8s.api.core.v1.ObjectReference",
    meta.ObjectMetadata: "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    meta.ListMetadata: "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
}


def definition_name(struct: type[Any]) -> str:
    """Return the name of a struct's definition. Raises KeyError for a struct of another module."""
    return _OWN.get(struct) or f"{_PACKAGES[struct.__module__]}.{struct.__name__}"
