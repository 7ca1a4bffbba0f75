"""Records of connections that do not arrive: the doctor of the whole cluster asks antctl in the flow aggregator's Pods."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from antrea.antctl.doctor.state import Finding
from antrea.antctl.failure import Failure
from antrea.antctl.flows import NAMESPACE, PODS
from antrea.antctl.pod_exec import run_in_pod
from antrea.antctl.request import ErrorResponse, Server, ask
from antrea.apis.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CHECK = "flow-aggregator"
ASKED = ("antctl", "get", "destinations", "-o", "json")


def flow_aggregator(kubernetes: Server) -> Iterator[Finding]:
    """What each of its Pods fails to write; that there is none is no finding."""
    try:
        pods = ask(kubernetes, PODS, {"labelSelector": "app=flow-aggregator"})["items"]
    except ErrorResponse as why:
        if why.status != 404:
            text = f"Pods of the flow aggregator cannot be listed: {why.format_message()}"
            yield Finding("", "unknown", CHECK, text, "")
        return
    for name in sorted(
        one["metadata"]["name"] for one in pods if not one["metadata"].get("deletionTimestamp")
    ):
        try:
            done = run_in_pod(kubernetes, f"{NAMESPACE}/{name}", ASKED, container="flow-aggregator")
            if done.code:
                raise Failure(done.stderr.strip() or f"exit code {done.code}")
        except Failure as why:
            text = f"Pod {NAMESPACE}/{name} cannot be asked: {one_line(why.format_message())}"
            yield Finding("", "unknown", CHECK, text, f"kubectl -n {NAMESPACE} describe pod {name}")
            continue
        yield from lost(name, json.loads(done.stdout))


def lost(pod: str, destinations: list[Mapping[str, Any]]) -> Iterator[Finding]:
    """Findings on the destinations of one Pod: records that were not written, or not kept."""
    repair = f"kubectl -n {NAMESPACE} logs {pod}"
    for one in destinations:
        where = f"{one['name']} of Pod {NAMESPACE}/{pod}"
        dropped = f"{one['dropped']} records were dropped since it started" if one["dropped"] else ""
        if one["trouble"]:
            text = f"{where} takes no records: {one_line(one['trouble'])}{'; ' * bool(dropped)}{dropped}"
            yield Finding("", "warning", CHECK, text, repair)
        elif dropped:
            yield Finding(
                "", "warning", CHECK, f"{where}: {dropped}, for which its buffer had no room", repair
            )
        if one["removed"]:
            text = f"{where}: {one['removed']} records were removed before their time, for store.maxSize or a full disk"
            yield Finding("", "warning", CHECK, text, repair)
