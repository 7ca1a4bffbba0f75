"""Flow records that do not arrive, and a configuration that is refused: the doctor asks antctl in the flow aggregator's Pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.antctl.doctor.state import Finding
from antrea.antctl.failure import Failure
from antrea.antctl.flows import NAMESPACE, PODS
from antrea.antctl.pod_exec import run_in_pod
from antrea.antctl.request import ErrorResponse, Server, ask
from antrea.apis.shown import one_line
from antrea.decoding import guarded
from antrea.errors import Invalid
from antrea.outside.netlink.iproute2 import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CHECK = "flow-aggregator"
EDIT = f"kubectl -n {NAMESPACE} edit configmap flow-aggregator-configmap"
CONDITIONS = {
    "ConfigRejected": (
        "error",
        "refuses its configuration, and the last good configuration stays in effect",
        EDIT,
    ),
    "RecordsNotTaken": ("error", "takes no records", ""),
    "CertificatesFailing": ("warning", "cannot keep its certificates", ""),
}
"""Severity, fault and repair by the type of a condition; no repair: its log."""


def flow_aggregator(kubernetes: Server) -> Iterator[Finding]:
    """Find faults of each Pod of the flow aggregator; without such a Pod there are no findings."""
    try:
        pods = ask(kubernetes, PODS, {"labelSelector": "app=flow-aggregator"})["items"]
    except ErrorResponse as error:
        if error.status != 404:
            text = f"Pods of the flow aggregator cannot be listed: {error.format_message()}"
            yield Finding("", "error", CHECK, text, "")
        return
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
        if pod["metadata"].get("deletionTimestamp"):
            continue
        name = pod["metadata"]["name"]
        try:
            states, destinations = (_rows(kubernetes, name, what) for what in ("conditions", "destinations"))
        except Failure as error:
            yield unanswered(pod, error.format_message())
            continue
        yield from conditions(name, states)
        yield from lost(name, destinations)


def _rows(kubernetes: Server, pod: str, what: str) -> list[dict[str, Any]]:
    """Rows that antctl prints there. Raises Failure."""
    command = ("antctl", "get", what, "-o", "json")
    done = run_in_pod(kubernetes, f"{NAMESPACE}/{pod}", command, container="flow-aggregator")
    if done.code:
        raise Failure(done.stderr.strip() or f"exit code {done.code}")
    try:
        return guarded("its answer", rows_of, done.stdout)
    except Invalid as error:
        raise Failure(str(error)) from error


def unanswered(pod: Mapping[str, Any], why: str) -> Finding:
    """The finding on a Pod that cannot be asked, with what its program printed when it last ended by a fault."""
    name = pod["metadata"]["name"]
    repair = f"kubectl -n {NAMESPACE} describe pod {name}"
    for container in pod.get("status", {}).get("containerStatuses", []):
        state = container.get("state", {})
        ended = state.get("terminated") or container.get("lastState", {}).get("terminated") or {}
        if (
            "running" not in state
            and ended.get("exitCode")
            and (printed := ended.get("message", "").strip().rpartition("\n")[2])
        ):
            return Finding(
                "", "error", CHECK, f"Pod {NAMESPACE}/{name} ends at start: {one_line(printed)}", repair
            )
    return Finding("", "error", CHECK, f"Pod {NAMESPACE}/{name} cannot be asked: {one_line(why)}", repair)


def conditions(pod: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Findings on one Pod as a whole."""
    for row in rows:
        if row["type"] in CONDITIONS:
            severity, fault, repair = CONDITIONS[row["type"]]
            text = f"Pod {NAMESPACE}/{pod} {fault}: {one_line(row['message'])}"
            yield Finding("", severity, CHECK, text, repair or f"kubectl -n {NAMESPACE} logs {pod}")


def lost(pod: str, destinations: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Findings on the destinations of one Pod: records that were not written, or not kept."""
    repair = f"kubectl -n {NAMESPACE} logs {pod}"
    for destination in destinations:
        where = f"{destination['name']} of Pod {NAMESPACE}/{pod}"
        dropped = (
            f"{destination['dropped']} records were dropped since it started"
            if destination["dropped"]
            else ""
        )
        if destination["trouble"]:
            text = (
                f"{where} takes no records: {one_line(destination['trouble'])}{'; ' * bool(dropped)}{dropped}"
            )
            yield Finding("", "warning", CHECK, text, repair)
        elif dropped:
            yield Finding(
                "", "warning", CHECK, f"{where}: {dropped}, for which its buffer had no room", repair
            )
        if destination["removed"]:
            text = f"{where}: {destination['removed']} records were removed before their time, for store.maxSize or a full disk"
            yield Finding("", "warning", CHECK, text, repair)
