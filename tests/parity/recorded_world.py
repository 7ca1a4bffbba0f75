"""The cluster whose answers were recorded ($ANTREA_GOLDEN), as facts of our controller."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from recording import GOLDEN, collection, found_at, inputs, objects, phase, table

from antrea.apis import core
from antrea.controller.compute.runtime import FEATURES
from antrea.engine import Engine, Facts
from antrea.facts.fact import each
from antrea.features.grouping.row import namespace_row, node_row, pod_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.facts.fact import Fact

CONTROLPLANE = "/apis/controlplane.antrea.io/v1beta2"
GROUPS = ("addressgroups", "appliedtogroups", "egressgroups")
POD_NETWORK = 24
"""Bits of the network that a Node of the recordings gives its Pods addresses of."""
WATCHED = tuple(
    watch
    for feature in FEATURES
    for watch in feature.watched
    if watch.path.rpartition("/")[2] not in ("pods", "namespaces", "nodes")
)
"""What is watched and was recorded as objects; several features may watch one path, each for rows of its own."""
needs_recordings = pytest.mark.skipif(not GOLDEN.is_dir(), reason="ANTREA_GOLDEN names no recorded answers")


def answered(path: str, *folders: str) -> Any:
    """The JSON that a GET of the path was answered with; the test is skipped if that was not recorded."""
    found = found_at(path, *folders)
    if found is None:
        pytest.skip(f"no answer to {path} was recorded")
    return json.loads(found.body)


def listed(name: str) -> list[Any]:
    """What was listed of a resource of controlplane.antrea.io."""
    found: list[Any] = answered(f"{CONTROLPLANE}/{name}", "controlplane")["items"]
    return found


def rows_of(one: dict[str, Any]) -> tuple[Fact, ...]:
    """What a recorded object is as facts; none for a kind that nobody watches."""
    path = collection(one)
    watches = [watch for watch in WATCHED if watch.path == path]
    return tuple(row for watch in watches for row in each(watch.row(msgspec.convert(one, watch.kind))))


def pods() -> Iterator[core.Pod]:
    where = {(row["NAMESPACE"], row["NAME"]): row for row in table("pods", "pod", "po")}
    for one in inputs("Pod"):
        meta = one["metadata"]
        if (row := where.get((meta.get("namespace", "default"), meta["name"]))) is None:
            continue
        ip, node = ("" if row[key] == "<none>" else row[key] for key in ("IP", "NODE"))
        status = {"phase": phase(row["STATUS"]), "podIPs": [{"ip": ip}] if ip else []}
        # what the API server fills in where the input says nothing
        usual = {"serviceAccountName": "default"}
        spec = {**usual, **one["spec"], "nodeName": node}
        yield msgspec.convert({**one, "spec": spec, "status": status}, core.Pod)


def nodes() -> Iterator[core.Node]:
    """With the networks that their Pods' addresses show."""
    where = [row for row in table("pods", "pod", "po") if row["IP"].count(".") == 3]
    for row in table("nodes", "node", "no"):
        name, own = row["NAME"], row["INTERNAL-IP"]
        ips = [pod["IP"] for pod in where if pod["NODE"] == name and pod["IP"] != own]
        cidrs = [f"{ips[0].rpartition('.')[0]}.0/{POD_NETWORK}"] if ips else []
        labels = dict(pair.partition("=")[::2] for pair in row["LABELS"].split(",") if pair)
        spec = {"podCIDR": cidrs[0] if cidrs else "", "podCIDRs": cidrs}
        status = {"addresses": [{"type": "InternalIP", "address": own}]}
        yield msgspec.convert(
            {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}, core.Node
        )


def world() -> tuple[Facts, Engine]:
    facts = Facts()
    for one in inputs("Namespace"):
        one["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = one["metadata"]["name"]
        facts.put(namespace_row(msgspec.convert(one, core.Namespace)))
    for pod in pods():
        if (row := pod_row(pod)) is not None:
            facts.put(row)
    for one in objects():
        for fact in rows_of(one):
            facts.put(fact)
    for node in nodes():
        facts.put(node_row(node))
    for watched in (one for feature in FEATURES for one in feature.watched):
        facts.synced(watched.fact)
    return facts, Engine(facts, [unit for feature in FEATURES for unit in feature.units])
