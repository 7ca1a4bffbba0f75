"""Requirements of upstream's flow visibility tests: the manifests beside antrea.yml, and the images that they name.

Its collector is go-ipfix's own. ClickHouse is its own engine, behind the HTTP interface of clickhouse_server.py.
"""

from __future__ import annotations

import base64
import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from image_build import cache
from image_build.oci import Image, layer
from image_build.rootfs import Tree
from lab import artifacts, certificates, flow_visibility, image_recipe, node
from lab.images import UPSTREAM_IPFIX_COLLECTORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from image_build.step import Progress
    from lab.cluster import Lab

HERE = Path(__file__).parent
CLICKHOUSE = HERE / "upstream_e2e_flows.yaml"
PROGRAMS = {"clickhouse-server": "clickhouse_server.py", "clickhouse-client": "clickhouse_client.py"}
NAMESPACE, SERVER = "flow-visibility", "clickhouse-clickhouse.flow-visibility.svc"
TESTS = "TestFlow"
"""How the names of these tests begin."""
VALUES = [
    "flowAggregator.enable=true",
    "flowAggregator.config.flowLogger.enable=false",  # as in upstream's manifest; mode Proxy refuses it
    "flowAggregator.resources.requests.cpu=10m",
    # as in upstream's own runs: Secrets that a collector over TLS is to have in the tests
    "flowAggregator.config.flowCollector.tls.caSecretName=ipfix-server-ca",
    "flowAggregator.config.flowCollector.tls.clientSecretName=ipfix-client-cert",
]
OTHERS = ("flow-aggregator-1", "flow-aggregator-2")
"""Namespaces of further aggregators, for tests with several destinations."""


def wanted(tests: Iterable[str]) -> bool:
    """Whether some of these tests need it."""
    return any(test.startswith(TESTS) for test in tests)


def serve(lab: Lab, tell: Progress) -> None:
    """Bring images and manifests to the nodes. May be repeated."""
    first = lab.topology.nodes[0].name
    store = image_recipe.product(tell, "--flow-aggregator")
    collector = collector_image(artifacts.ipfix_collector(tell))
    for machine in lab.topology.nodes:
        images = [collector, store] if machine.name == first else [collector]
        flow_visibility.import_images(lab, machine.name, images)
    for name, text in manifests(first, store.names[0]).items():
        node.execute(lab.record, first, "sh", "-c", f"cat > /root/{name}", stdin=text)


def collector_image(program: Path) -> Image:
    """go-ipfix's collector alone, which takes IPFIX over TCP at port 4739 and answers at 8080 with what it has taken."""
    tree = Tree()
    tree.file("collector", program, 0o755)
    tree.folder("tmp", 0o1777)
    return Image(UPSTREAM_IPFIX_COLLECTORS, (layer(tree.key(), tree.write),), ("/collector",))


def manifests(first: str, image: str) -> dict[str, str]:
    """Return manifests by the names under which the suite applies them on the control-plane Node."""
    aggregator, _ = flow_visibility.rendered(VALUES)
    clickhouse = CLICKHOUSE.read_text().replace("FIRST", first).replace("IMAGE", image)
    server = "---\n".join([yaml.safe_dump_all(_supplies()), clickhouse])
    operator = {"apiVersion": "v1", "kind": "ServiceAccount"}
    operator["metadata"] = {"name": "clickhouse-operator", "namespace": "kube-system"}  # type: ignore[assignment]
    others = {
        f"{name}.yml": yaml.safe_dump_all(in_namespace(aggregator, name), sort_keys=False) for name in OTHERS
    }
    return {
        "flow-aggregator.yml": yaml.safe_dump_all(aggregator, sort_keys=False),
        **others,
        "clickhouse-operator-install-bundle.yml": json.dumps(operator),
        "flow-visibility.yml": server,
        "flow-visibility-tls.yml": server,
    }


def in_namespace(objects: Iterable[Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
    """An aggregator of another Namespace: what has no Namespace gets a name of its own, the Namespace this one."""
    renamed = []
    for document in objects:
        made, meta = copy.deepcopy(dict(document)), dict(document["metadata"])
        if "namespace" in meta:
            meta["namespace"] = name
        else:
            meta["name"] = name if document["kind"] == "Namespace" else f"{name}-{meta['name']}"
        for subject in made.get("subjects", ()):
            if subject.get("namespace") == flow_visibility.NAMESPACE:
                subject["namespace"] = name
        role = made.get("roleRef", {})
        if role.get("kind") == "ClusterRole" and role["name"].startswith(flow_visibility.NAMESPACE):
            role["name"] = f"{name}-{role['name']}"
        renamed.append(made | {"metadata": meta})
    return renamed


def _supplies() -> list[dict[str, Any]]:
    """Programs and certificates of the server."""

    def make(part: Path) -> None:
        ca = certificates.authority(part, "ca", "clickhouse")
        certificates.issue(ca, "tls", SERVER, sans=(SERVER,))

    place = cache.made("clickhouse-certificate", SERVER, make)

    def of(kind: str, name: str, data: dict[str, str]) -> dict[str, Any]:
        meta = {"name": name, "namespace": NAMESPACE}
        return {"apiVersion": "v1", "kind": kind, "metadata": meta, "data": data}

    def encoded(*names: str) -> dict[str, str]:
        return {name: base64.b64encode((place / name).read_bytes()).decode() for name in names}

    return [
        of("ConfigMap", "clickhouse-programs", {name: (HERE / file).read_text() for name, file in PROGRAMS.items()}),
        of("Secret", "clickhouse-tls", encoded("tls.crt", "tls.key")),
        of("Secret", "clickhouse-ca", encoded("ca.crt")),
    ]  # fmt: skip
