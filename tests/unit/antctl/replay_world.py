"""Pods with addresses, and which connections between them policies close by the evaluator of `antctl explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.antctl.explain.source import Settings, Source
from antrea.antctl.policy.whatif import replay, with_objects
from antrea.explain.objects import objects
from antrea.explain.world import Proxy

if TYPE_CHECKING:
    from antrea.antctl.policy.recommendation import Link

SPACES = ("shop", "other")


def pod(space: str, name: str, labels: dict[str, str], *ips: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": space, "name": name, "labels": labels},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "podIPs": [{"ip": one} for one in ips]},
    }


def source_of(pods: list[dict[str, Any]]) -> Source:
    spaces = [
        {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}} for name in SPACES
    ]
    return Source(objects({"pods": pods, "namespaces": spaces}), settings=Settings(Proxy()))


def changed(pods: list[dict[str, Any]], policies: list[dict[str, Any]], links: list[Link]) -> set[Link]:
    """Those of `links` that pass without the policies, and not with them."""
    source = source_of(pods)
    found = replay(source, with_objects(source, policies), links)
    assert found.unjudged == []
    assert {(one.before, one.after) for one in found.changed} <= {("Allow", "Drop")}
    return {one.link for one in found.changed}
