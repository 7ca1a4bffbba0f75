"""Features and their homes: which may import which, and how many files elsewhere name one."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING

import pytest
from feature_home import HOMES, PRODUCT, dependents, edges, modules_in, required

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
SHARED = ("apis", "openflow", "explain", "config", "flow_protobuf")
"""Packages that name features because the wire, the configuration file, the switch and the evaluator share what they define."""
NOUNS = {
    "external_ip_pool": "a kind that Egresses and Services refer to: what is said about these names it",
    "external_node": "a kind of machine, as a Node is: policies, reports and Events are about machines of both kinds",
}
"""Features whose sentences elsewhere do not count, because they are about the objects and not about the feature."""
FOREIGN_FILES = {
    "admin_policy": 3,
    "external_ip_pool": 3,
    "external_node": 2,
    "flow_export": 4,
    "ip_pool": 3,
    "l7_flow_export": 3,
    "l7_network_policy": 3,
    "node_config": 4,
    "node_latency": 3,
    "node_policy": 3,
    "node_port_local": 3,
    "packet_capture": 2,
    "service_external_ip": 4,
    "support_bundle_collection": 4,
    "traceflow": 3,
    "traffic_control": 3,
}
"""Maximum number of modules that name a feature, and would have to change if it were removed: 4, and these only fall.

Modules of the feature, and of those that build on it, would be removed together with it.
"""
REQUIRED = {"grouping", "network_policy", "node_route", "pod_connectivity", "proxy"}
"""Features that programs, or required features, import by name: they cannot be removed; the set only shrinks."""


@cache
def product_modules() -> list[Path]:
    """Modules that are not of shared packages."""
    paths = sorted(PRODUCT.rglob("*.py"))
    return [path for path in paths if path.relative_to(PRODUCT).parts[0] not in SHARED]


class WithoutSentences(ast.NodeTransformer):
    """Empties strings that have more than one word."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        is_sentence = isinstance(node.value, str) and re.search(r"\s", node.value)
        return ast.Constant("") if is_sentence else node


@cache
def own_text(path: Path, *, sentences: bool = True) -> str:
    """Text of a file without what others define: names of shared packages, keys of the configuration, fields, and upstream's code.

    Without `sentences` comments and strings that have more than one word are left out.
    """
    text = re.sub(r"(?m)^ *#? ?parity:.*$", "", path.read_text())
    if not sentences:
        text = ast.unparse(WithoutSentences().visit(ast.parse(text)))
    text = re.sub(r"\b(spec|config|c|Category)\.[\w.]+", "", text)
    shared = tuple(f"antrea.{name}." for name in SHARED)
    names = {module.rpartition(".")[2] for module in modules_in(path) if module.startswith(shared)}
    return re.sub(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b", "", text) if names else text


def test_a_feature_imports_only_features_that_are_listed_before_it() -> None:
    place = {name: number for number, name in enumerate(FEATURES)}
    assert [(name, other) for name, other in edges() if place[other] > place[name]] == []


@pytest.mark.parametrize("name", FOREIGN_FILES)
def test_few_files_elsewhere_name_a_feature(name: str) -> None:
    pattern = re.compile(NAMES.get(name, name.replace("_", "_?")), re.IGNORECASE)
    homes = {HOMES / feature for feature in dependents(name)}
    naming = [
        str(path.relative_to(PRODUCT))
        for path in product_modules()
        if homes.isdisjoint(path.parents)
        and pattern.search(own_text(path))
        and (name not in NOUNS or pattern.search(own_text(path, sentences=False)))
    ]
    print(f"{name}: {len(naming)}: {', '.join(naming)}")
    assert len(naming) <= FOREIGN_FILES[name], naming


def test_no_more_features_are_required() -> None:
    assert required() <= REQUIRED
