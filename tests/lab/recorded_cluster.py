"""Objects of the cluster that was recorded ($ANTREA_GOLDEN), made again in the lab: Nodes and Pods without kubelets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from recording import inputs, key, objects, phase, plural, table

from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api_client import ApiClient

POD_NETWORK = 24
"""Bits of the network that a Node of the recordings gives its Pods addresses of."""
MERGE = "application/merge-patch+json"


def path(one: dict[str, Any]) -> str:
    """Of the collection that the object is created in."""
    version, (space, _) = one["apiVersion"], key(one)
    root = f"{'/apis' if '/' in version else '/api'}/{version}"
    return f"{root}/{f'namespaces/{space}/' if space else ''}{plural(one['kind'])}"


def nodes() -> Iterator[dict[str, Any]]:
    """With the networks that their Pods' addresses show."""
    where = [row for row in table("pods", "pod", "po") if row["IP"].count(".") == 3]
    for row in table("nodes", "node", "no"):
        name, own = row["NAME"], row["INTERNAL-IP"]
        ips = [pod["IP"] for pod in where if pod["NODE"] == name and pod["IP"] != own]
        cidrs = [f"{ips[0].rpartition('.')[0]}.0/{POD_NETWORK}"] if ips else []
        labels = dict(pair.partition("=")[::2] for pair in row["LABELS"].split(",") if pair)
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs} if cidrs else {},
            "status": {
                "addresses": [{"type": "InternalIP", "address": own}],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }


def pods() -> Iterator[dict[str, Any]]:
    """The manifests that were applied, on the Nodes and with the addresses that were recorded."""
    where = {(row["NAMESPACE"], row["NAME"]): row for row in table("pods", "pod", "po")}
    for one in inputs("Pod"):
        if (row := where.get(key(one))) is None:
            continue
        ip, node = ("" if row[cell] == "<none>" else row[cell] for cell in ("IP", "NODE"))
        if node:
            # no kubelet renews the lease of its Node
            one["spec"] |= {"nodeName": node, "tolerations": [{"operator": "Exists"}]}
        addresses = {"podIP": ip, "podIPs": [{"ip": ip}]} if ip else {}
        yield {**one, "status": {"phase": phase(row["STATUS"]), **addresses}}


def namespaces() -> Iterator[dict[str, Any]]:
    """Those that were there when objects were listed."""
    spaces = {row["NAME"] for row in table("ns", "namespaces", "namespace")}
    return (one for one in inputs("Namespace") if one["metadata"]["name"] in spaces)


def others() -> Iterator[dict[str, Any]]:
    """What else was applied before the objects were listed; Egresses come after the pools that they name."""
    spaces = {one["metadata"]["name"] for one in namespaces()}
    yield from (one for one in inputs("ServiceAccount") if key(one)[0] in spaces)
    yield from pods()
    listed = {(one["apiVersion"], one["kind"], *key(one)) for one in objects()}
    kinds = {one["kind"] for one in objects()} - {"Pod", "Namespace"}
    found = [one for one in inputs(*kinds) if (one["apiVersion"], one["kind"], *key(one)) in listed]
    yield from sorted(found, key=lambda one: one["kind"] == "Egress")


def create(api: ApiClient, one: dict[str, Any]) -> None:
    """One object, with the status of a Node or Pod; an address of a pool is waited for: their order decides who has which."""
    answer = api.call("POST", path(one), one)
    assert answer.status == 201, answer
    if one["kind"] in ("Node", "Pod"):
        where = f"{path(one)}/{one['metadata']['name']}/status"
        answer = api.call("PATCH", where, {"status": one["status"]}, kind=MERGE)
        assert answer.status == 200, answer
    if one["kind"] == "ExternalIPPool" or (one["kind"] == "Egress" and one["spec"].get("externalIPPool")):
        wait_for(f"status of {key(one)}", partial(has_status, api, one), seconds=60, step=0.05)


def fill(api: ApiClient) -> None:
    """All of them."""
    for one in namespaces():
        create(api, one)
        account = f"/api/v1/namespaces/{one['metadata']['name']}/serviceaccounts/default"
        wait_for(account, partial(exists, api, account), seconds=60, step=0.1)
    for one in (*nodes(), *others()):
        create(api, one)


def exists(api: ApiClient, where: str) -> bool:
    return api.call("GET", where).status == 200


def has_status(api: ApiClient, one: dict[str, Any]) -> bool:
    found = api.call("GET", f"{path(one)}/{one['metadata']['name']}").body.get("status", {})
    return bool(found.get("usage") or found.get("conditions"))


def uids(api: ApiClient) -> dict[str, str]:
    """UIDs here, and what those of the same objects were when they were recorded."""
    found = {}
    for one in objects():
        here = api.call("GET", f"{path(one)}/{one['metadata']['name']}")
        if here.status == 200:
            found[here.body["metadata"]["uid"]] = one["metadata"]["uid"]
    return found
