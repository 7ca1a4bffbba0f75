"""Discovery of the server's resources for kubectl and the aggregation layer: group by group, and aggregated.

Source: https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from antrea.apis.resource import Resource

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def documents(resources: Iterable[Resource]) -> Mapping[str, Any]:
    """Answers by path: /apis, /apis/GROUP and /apis/GROUP/VERSION."""
    groups = {}
    by_path: dict[str, Any] = {}
    for (group, version), rows in groupby(resources, lambda row: (row.group, row.version)):
        shown = {"groupVersion": f"{group}/{version}", "version": version}
        groups[group] = {"name": group, "versions": [shown], "preferredVersion": shown}
        by_path[f"/apis/{group}"] = {"kind": "APIGroup", "apiVersion": "v1", **groups[group]}
        by_path[f"/apis/{group}/{version}"] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}",
            "resources": [resource for row in rows for resource in _listed(row)],
        }
    by_path["/apis"] = {"kind": "APIGroupList", "apiVersion": "v1", "groups": list(groups.values())}
    return by_path


def _listed(row: Resource) -> list[dict[str, Any]]:
    listed = {
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": list(row.verbs),
    }
    return [
        listed,
        *(
            {
                "name": f"{row.plural}/{part.name}",
                "singularName": "",
                "namespaced": row.namespaced,
                "kind": part.kind.__name__,
                "verbs": list(part.verbs),
            }
            for part in row.subresources
        ),
    ]


def aggregated(resources: Iterable[Resource], version: str = "v2") -> dict[str, Any]:
    """All groups in one answer, apidiscovery.k8s.io/v2 or v2beta1."""
    items = []
    for (group, of), rows in groupby(resources, lambda row: (row.group, row.version)):
        shown = {"version": of, "resources": [_discovered(row) for row in rows], "freshness": "Current"}
        items.append({"metadata": {"name": group, "creationTimestamp": None}, "versions": [shown]})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _discovered(row: Resource) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "resource": row.plural,
        "responseKind": _kind(row.kind),
        "scope": "Namespaced" if row.namespaced else "Cluster",
        "singularResource": row.singular,
        "verbs": list(row.verbs),
    }
    if row.subresources:
        shown["subresources"] = [
            {"subresource": part.name, "responseKind": _kind(part.kind.__name__), "verbs": list(part.verbs)}
            for part in row.subresources
        ]
    return shown


def _kind(kind: str) -> dict[str, str]:
    # group and version are left to the group's own, as upstream does
    return {"group": "", "version": "", "kind": kind}
