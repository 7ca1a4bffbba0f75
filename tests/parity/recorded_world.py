"""The cluster whose answers were recorded ($ANTREA_GOLDEN), as facts of our controller."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from antrea.apis import core
from antrea.controller.compute import FEATURES
from antrea.engine import Engine, Facts
from antrea.facts.fact import each
from antrea.features.grouping.row import namespace_row, node_row, pod_row

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = Path(os.environ.get("ANTREA_GOLDEN", "/nowhere"))


def recorded(name: str) -> list[Any]:
    """Objects of a recorded list."""
    text = (GOLDEN / "raw" / name).read_text()
    body = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    found: list[Any] = (yaml.safe_load if name.endswith(".yaml") else json.loads)(body)["items"]
    return found


def inputs(kind: str) -> Iterator[dict[str, Any]]:
    for file in sorted((GOLDEN / "inputs").glob("*.yaml")):
        yield from (one for one in yaml.safe_load_all(file.read_text()) if one and one["kind"] == kind)


def addresses() -> dict[tuple[str, str], tuple[str, str]]:
    """IP and Node of each Pod that was there."""
    lines = (GOLDEN / "raw/get/pods.wide.txt").read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith(("#", "NAMESPACE"))]
    return {(row[0], row[1]): (row[-4], row[-3]) for row in rows}


def pods() -> Iterator[core.Pod]:
    where = addresses()
    for one in inputs("Pod"):
        meta = one["metadata"]
        if (place := where.get((meta.get("namespace", "default"), meta["name"]))) is None:
            continue
        ip, node = place
        more = {"phase": "Running", "podIPs": [] if ip == "<none>" else [{"ip": ip}]}
        # what the API server fills in where the input says nothing
        usual = {"serviceAccountName": "default"}
        spec = {**usual, **one["spec"], "nodeName": "" if node == "<none>" else node}
        yield msgspec.convert({**one, "spec": spec, "status": more}, core.Pod)


def nodes() -> Iterator[core.Node]:
    """As the lab of the recording made them; README.md of the recordings has their labels."""
    for number, role in ((1, "edge"), (2, "core")):
        name = f"n{number}"
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name, "role": role}}
        status = {"addresses": [{"type": "InternalIP", "address": f"172.30.0.{number + 10}"}]}
        spec = {"podCIDR": f"10.244.{number - 1}.0/24", "podCIDRs": [f"10.244.{number - 1}.0/24"]}
        yield msgspec.convert({"metadata": meta, "spec": spec, "status": status}, core.Node)


RECORDED = {
    path.rpartition("/")[2] if "k8s.io" not in path else "k8s-networkpolicies": watch
    for path, watch in {one.path: one for feature in FEATURES for one in feature.watched}.items()
    if path.rpartition("/")[2] not in ("pods", "namespaces", "nodes")
}
RECORDED["antrea-networkpolicies"] = RECORDED.pop("networkpolicies")
"""By file, what is watched."""


def world() -> tuple[Facts, Engine]:
    facts = Facts()
    for one in inputs("Namespace"):
        one["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = one["metadata"]["name"]
        facts.put(namespace_row(msgspec.convert(one, core.Namespace)))
    for pod in pods():
        if (row := pod_row(pod)) is not None:
            facts.put(row)
    for name, watch in RECORDED.items():
        for one in recorded(f"get/{name}.yaml"):
            found = each(watch.row(msgspec.convert(one, watch.kind)))
            assert found
            for fact in found:
                facts.put(fact)
    for node in nodes():
        facts.put(node_row(node))
    for watched in (one for feature in FEATURES for one in feature.watched):
        facts.synced(watched.fact)
    return facts, Engine(facts, [unit for feature in FEATURES for unit in feature.units])
