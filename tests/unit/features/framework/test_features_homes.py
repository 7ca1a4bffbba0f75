"""Features and their homes: which may import which, and how many files elsewhere name one."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import pytest
from feature_home import HOMES, PRODUCT, edges, modules_in, required

from antrea.features import FEATURES

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.untraced

NAMES = {
    "node_policy": "node_?(network_?)?policy",
    "admin_policy": r"admin_?(network_?)?policy|policy\.networking\.k8s\.io",
    "flow_export": "(?<!l7_)(?<!l7)flow_?export",
    "ip_pool": "(?<!external_)(?<!external)ip_?pool",
}
"""Patterns of features whose names differ from their folders', or are part of another feature's name."""
SHARED = ("apis", "openflow", "explain", "config/gates.py")
"""Files that name features because the wire, the switch and the evaluator share what they define."""
FOREIGN_FILES = {
    "admin_policy": 9,
    "external_ip_pool": 43,
    "external_node": 26,
    "flow_export": 11,
    "ip_pool": 3,
    "l7_flow_export": 3,
    "l7_network_policy": 3,
    "node_config": 4,
    "node_latency": 3,
    "node_policy": 3,
    "node_port_local": 9,
    "packet_capture": 7,
    "service_external_ip": 7,
    "support_bundle_collection": 4,
    "traceflow": 7,
    "traffic_control": 3,
}
"""Modules outside a feature's folder that name it, at most; a number only falls, and the aim is 4."""
REQUIRED = {"grouping", "network_policy", "node_route", "pod_connectivity", "proxy"}
"""Features that programs, or required features, import by name: they cannot be removed; the set only shrinks."""


@cache
def own_text(path: Path) -> str:
    """Text of a file without names of the pipeline's tables and fields, which are the switch's, and names of upstream's code."""
    text = path.read_text()
    switch = {
        name
        for module in modules_in(path)
        if module.startswith("antrea.openflow.")
        for name in module.split(".")[2:]
    }
    names = "|".join(map(re.escape, sorted(name for name in switch if name.isupper())))
    text = re.sub(r"(?m)^ *#? ?parity:.*$", "", text)
    return re.sub(rf"\b({names})\b", "", text) if names else text


def test_a_feature_imports_only_features_that_are_listed_before_it() -> None:
    place = {name: number for number, name in enumerate(FEATURES)}
    assert [(name, other) for name, other in edges() if place[other] > place[name]] == []


@pytest.mark.parametrize("name", FOREIGN_FILES)
def test_few_files_elsewhere_name_a_feature(name: str) -> None:
    pattern = re.compile(NAMES.get(name, name.replace("_", "_?")), re.IGNORECASE)
    files = [path for path in PRODUCT.rglob("*.py") if not path.is_relative_to(HOMES / name)]
    paths = (str(path.relative_to(PRODUCT)) for path in files if pattern.search(own_text(path)))
    found = sorted(path for path in paths if not path.startswith(SHARED))
    print(f"{name}: {len(found)}: {', '.join(found)}")
    assert len(found) <= FOREIGN_FILES[name], found


def test_no_more_features_are_required() -> None:
    assert required() <= REQUIRED
