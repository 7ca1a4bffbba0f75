"""Answers of kube-apiserver, and reports of agents and the controller about themselves, which count only while they are renewed."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from antrea.antctl.doctor.control_plane.cluster_state import AGENT, CONTROLLER, name_of, statuses
from antrea.antctl.doctor.control_plane.rollout import condition, node_of
from antrea.antctl.doctor.state import Finding
from antrea.apis.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from antrea.antctl.doctor.control_plane.cluster_state import ClusterState

API_SERVER: Final = "kube-apiserver"
HEARTBEATS: Final = "heartbeats"
CONTROLLER_HEARTBEAT: Final = "controller-heartbeat"
CONTROLLER_HEALTH: Final = "controller-health"
VERSIONS: Final = "versions"
MAX_AGE: Final = 150.0
"""Seconds after which a report is late: programs renew theirs every 60 s."""
CONNECTIONS: Final = {
    "OVSDBConnectionUp": "ovsdb",
    "OpenflowConnectionUp": "switch",
    "ControllerConnectionUp": "controller-connection",
    "AgentHealthy": "agent-health",
}
"""Checks by the condition of AntreaAgentInfo, root causes first."""
MAX_LATENCY: Final = 2.0
"""Seconds for the fastest of a dozen requests, with their connections, on the longest way to a cluster."""
MAX_LOOKS: Final = 6
"""How often the reports are read while one has a connection that is down."""
LOOK_INTERVAL: Final = 1.0
"""Seconds between them."""
RECONCILE: Final = "kubectl auth reconcile -f antrea.yml  # of this release; it adds rights that are missing"


def api_server(state: ClusterState) -> Iterator[Finding]:
    """Yield kube-apiserver, if even the fastest request takes long: agents and the controller wait as long for each of theirs."""
    if (took := state.latency or 0.0) > MAX_LATENCY:
        text = f"kube-apiserver took {took:.1f} s for the fastest request: Pods start late, and policies and Services change late"
        yield Finding("", "error", API_SERVER, text, "kubectl get --raw '/readyz?verbose'")


def heartbeats(state: ClusterState) -> Iterator[Finding]:
    """Yield Nodes whose running agent has not renewed its report."""
    infos = {name_of(info): info for info in state.agent_infos or ()}
    for pod in state.pods_of(AGENT):
        name, running = node_of(pod), running_seconds(state, pod)
        if running < MAX_AGE:
            continue
        age = age_of(state, infos.get(name, {}).get("agentConditions", ()))
        logs = f"kubectl -n {state.namespace} logs {name_of(pod)} -c {AGENT} --tail=20"
        if name not in infos or age is None:
            yield Finding(
                name, "error", HEARTBEATS, f"the agent runs since {running:.0f} s and has not reported", logs
            )
        elif age > MAX_AGE:
            text = f"the agent has not reported for {age:.0f} s: its conditions are as old"
            yield Finding(name, "error", HEARTBEATS, text, logs)


def controller_heartbeat(state: ClusterState) -> Iterator[Finding]:
    """Yield a controller that runs and has not renewed its report, or that reports a fault."""
    info, pods = state.controller_info or {}, state.pods_of(CONTROLLER)
    rows = info.get("controllerConditions", ())
    age = age_of(state, rows)
    where = info.get("nodeRef", {}).get("name", "")
    logs = f"kubectl -n {state.namespace} logs deployment/{CONTROLLER} --tail=20"
    if any(running_seconds(state, pod) >= MAX_AGE for pod in pods) and (age is None or age > MAX_AGE):
        text = (
            f"the controller has not reported for {age:.0f} s" if age else "the controller has never reported"
        )
        yield Finding(where, "error", CONTROLLER_HEARTBEAT, text, logs)
    for row in rows:
        if (
            row["type"] == "ControllerHealthy"
            and row["status"] == "False"
            and age is not None
            and age <= MAX_AGE
        ):
            message = one_line(row.get("message") or "it is not healthy")
            repair = RECONCILE if "the right to read" in message else logs
            yield Finding(where, "error", CONTROLLER_HEALTH, message, repair)


def connections(state: ClusterState) -> Iterator[Finding]:
    """Yield conditions that are False in reports that are not late; a check that has failed is not named again by AgentHealthy."""
    pods = {node_of(pod): name_of(pod) for pod in state.pods_of(AGENT)}
    for info in state.agent_infos or ():
        name, rows = name_of(info), {row["type"]: row for row in info.get("agentConditions", ())}
        age = age_of(state, rows.values())
        if name not in pods or age is None or age > MAX_AGE:
            continue
        messages: list[str] = []
        for kind, check in CONNECTIONS.items():
            message = one_line(rows.get(kind, {}).get("message", ""))
            if rows.get(kind, {}).get("status") != "False" or all(
                part in messages for part in message.split("; ")
            ):
                continue
            messages.append(message)
            yield Finding(
                name, "error", check, message, repair_of(check, state.namespace, pods[name], message)
            )


def confirmed(
    state: ClusterState, look: Callable[[ClusterState], ClusterState], pause: Callable[[float], None]
) -> ClusterState:
    """Return the state with reports that `look` has read again while a connection is down.

    Agents that start, or are rebuilt for another feature gate, are connected again within a few seconds; a fault stays.
    """
    for _ in range(MAX_LOOKS - 1):
        if next(connections(state), None) is None:
            break
        pause(LOOK_INTERVAL)
        state = look(state)
    return state


def repair_of(check: str, namespace: str, pod: str, message: str = "") -> str:
    """Return the command for a connection of an agent that is down, or for a check of it that fails."""
    if "the right to read" in message:
        return RECONCILE
    if check in ("ovsdb", "switch"):
        return f"kubectl -n {namespace} delete pod {pod}"
    return f"kubectl -n {namespace} logs {pod} -c {AGENT} --tail=20"


def versions(state: ClusterState) -> Iterator[Finding]:
    """Yield agents of another version than the controller, or than most agents where no controller reports."""
    pods = {node_of(pod) for pod in state.pods_of(AGENT)}
    running = {
        name_of(info): info["version"]
        for info in state.agent_infos or ()
        if info.get("version") and name_of(info) in pods
    }
    usual = (state.controller_info or {}).get("version") or next(
        iter(dict(Counter(running.values()).most_common(1))), ""
    )
    others = sorted(name for name, version in running.items() if version != usual)
    if not others:
        return
    more = f" and {len(others) - 5} more" if len(others) > 5 else ""
    text = (
        f"agents of Node {', '.join(others[:5])}{more} run {', '.join(sorted({running[name] for name in others}))}, "
        f"the controller {usual}"
    )
    images = [_image(state.agent_set()), _image(state.controller())]
    repair = f"kubectl -n {state.namespace} rollout restart daemonset/{AGENT}"
    if images[0] != images[1]:
        text += f"; DaemonSet {AGENT} has image {images[0]}, Deployment {CONTROLLER} {images[1]}"
        repair = f"kubectl -n {state.namespace} set image daemonset/{AGENT} '*={images[1]}'"
    yield Finding("", "warning", VERSIONS, text, repair)


def _image(owner: Mapping[str, Any] | None) -> str:
    containers = owner["spec"]["template"]["spec"]["containers"] if owner else ()
    return next((str(container["image"]) for container in containers), "")


def age_of(state: ClusterState, rows: Any) -> float | None:
    """Return seconds since the newest of these conditions was judged; None: there is none."""
    times = [row["lastHeartbeatTime"] for row in rows if row.get("lastHeartbeatTime")]
    return (state.now or 0.0) - seconds_of(max(times)) if times else None


def running_seconds(state: ClusterState, pod: Mapping[str, Any]) -> float:
    """Return for how long all containers of a Pod have been running; 0: one of them does not run."""
    if condition(pod, "PodReadyToStartContainers").get("status", "True") != "True":
        return 0.0
    states = [
        status.get("state", {}).get("running")
        for status in statuses(pod)
        if "terminated" not in status.get("state", {})
    ]
    if not states or not all(states):
        return 0.0
    return (state.now or 0.0) - max(seconds_of(running["startedAt"]) for running in states if running)


def seconds_of(time: str) -> float:
    """Return Unix seconds of a time of RFC 3339."""
    return datetime.fromisoformat(time).timestamp()
