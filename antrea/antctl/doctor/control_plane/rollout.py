"""Programs that run as desired: the controller, an agent on each Node, and DNS; else why not, by what kubelet reports."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from antrea.antctl.check.room import IMAGE_REASONS
from antrea.antctl.doctor.control_plane.cluster_state import AGENT, CONTROLLER, name_of, statuses, waiting
from antrea.antctl.doctor.control_plane.release import create, is_changed, undo
from antrea.antctl.doctor.state import Finding, edit
from antrea.apis.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.antctl.doctor.control_plane.cluster_state import ClusterState

AGENTS: Final = "agents"
CONTROLLERS: Final = "controller"
ACCOUNTS: Final = "service-accounts"
ACCOUNT_CHECKS: Final = {AGENT: "agent-account", CONTROLLER: "controller-account"}
"""Names of findings of the check ACCOUNTS by the program."""
DNS: Final = "cluster-dns"
HEALTH: Final = "agent-health"
"""Agents that run and are not Ready, for which their own conditions have the cause."""
TEMPLATE_REASONS: Final = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
CONFIG_FILES: Final = ("antrea-agent.conf", "antrea-controller.conf")
WEBHOOK: Final = re.compile(r'(?:admission webhook "([^"]+)" denied|failed calling webhook "([^"]+)")')
"""Words of kube-apiserver about a webhook that keeps an object from being created."""
MAX_EVENT: Final = 300
"""Characters of the message of an Event."""


def agents(state: ClusterState) -> Iterator[Finding]:
    """Yield Nodes without an agent Pod, and Pods of agents that are not Ready."""
    owner = state.agent_set()
    if owner is None:
        text = f"DaemonSet {AGENT} is missing: no Node has an agent"
        yield Finding("", "error", AGENTS, text, create(state, "antrea.yml"))
        return
    pods = {node_of(pod): pod for pod in state.pods_of(AGENT)}
    for node in state.nodes or ():
        name = name_of(node)
        if node["metadata"].get("labels", {}).get("kubernetes.io/os", "linux") != "linux":
            continue
        if name not in pods:
            yield Finding(name, "error", AGENTS, *_missing(state, owner, node))
        elif problem := pod_problem(state, pods[name], owner, "daemonset"):
            yield Finding(name, "error", HEALTH if runs(pods[name]) else AGENTS, *problem)


def runs(pod: Mapping[str, Any]) -> bool:
    """Return whether all containers of a Pod run."""
    states = [status.get("state", {}) for status in pod.get("status", {}).get("containerStatuses", ())]
    return bool(states) and all("running" in state for state in states)


def _missing(state: ClusterState, owner: Mapping[str, Any], node: Mapping[str, Any]) -> tuple[str, str]:
    """Return why a Node has no agent Pod, and the repair."""
    template = owner["spec"]["template"]["spec"]
    labels, selector = node["metadata"].get("labels", {}), template.get("nodeSelector") or {}
    describe = f"kubectl -n {state.namespace} describe daemonset {AGENT}"
    head = f"no agent Pod runs on this Node, and DaemonSet {AGENT}"
    if lacking := [f"{key}={value}" for key, value in selector.items() if labels.get(key) != value]:
        return f"{head} selects Nodes with {', '.join(lacking)}", undo(state, owner, "daemonset") or describe
    if taints := untolerated(node, template.get("tolerations") or ()):
        return f"{head} does not tolerate its taint {taints[0]}", undo(state, owner, "daemonset") or describe
    leaving = [
        name_of(pod)
        for pod in state.pods or ()
        if node_of(pod) == name_of(node) and name_of(pod).startswith(AGENT)
    ]
    if leaving:
        text = f"the agent Pod {leaving[0]} of this Node is being deleted and has not ended"
        return text, f"kubectl -n {state.namespace} delete pod {leaving[0]} --force --grace-period=0"
    why = event_of(state, "DaemonSet", AGENT, "FailedCreate")
    return f"{head} creates none: {why or 'no Event names a cause'}", webhook_edit(state, why) or describe


def controllers(state: ClusterState) -> Iterator[Finding]:
    """Yield what keeps the controller from running: no Deployment, no replicas, Pods that are missing or not Ready."""
    owner = state.controller()
    if owner is None:
        yield Finding(
            "", "error", CONTROLLERS, f"Deployment {CONTROLLER} is missing", create(state, "antrea.yml")
        )
        return
    desired, pods = owner["spec"].get("replicas", 1), state.pods_of(CONTROLLER)
    ready = owner.get("status", {}).get("readyReplicas", 0)
    if not desired:
        text = f"Deployment {CONTROLLER} is scaled to 0: policies and Egress IPs stay as they are, and new Pods wait"
        repair = f"kubectl -n {state.namespace} scale deployment/{CONTROLLER} --replicas=1"
        yield Finding("", "error", CONTROLLERS, text, repair)
        return
    severity = "warning" if ready else "error"
    problems = [(pod, pod_problem(state, pod, owner, "deployment")) for pod in pods]
    for pod, problem in problems:
        if problem:
            yield Finding(node_of(pod), severity, CONTROLLERS, *problem)
    if len(pods) < desired and ready < desired:
        failure = condition(owner, "ReplicaFailure").get("message") or event_of(
            state, "ReplicaSet", CONTROLLER, "FailedCreate"
        )
        text = f"Deployment {CONTROLLER} has {len(pods)} of {desired} Pods: {one_line(failure or 'no Event names a cause')}"
        describe = f"kubectl -n {state.namespace} describe deployment {CONTROLLER}"
        yield Finding("", severity, CONTROLLERS, text, webhook_edit(state, failure) or describe)


def webhook_edit(state: ClusterState, message: str) -> str:
    """Return the command that exempts Antrea's Namespace from the webhook that a message names; empty: it names none that exists."""
    match = WEBHOOK.search(message)
    hook = (match[1] or match[2]) if match else ""
    for name, item in (state.webhooks or {}).items():
        if hook and any(row["name"] == hook for row in item.get("webhooks", ())):
            kind = item.get("kind", "validatingwebhookconfiguration")
            return f"kubectl edit {kind} {name}  # let namespaceSelector of {hook} leave out Namespace {state.namespace}"
    return ""


def accounts(state: ClusterState) -> Iterator[Finding]:
    """Yield programs whose ServiceAccount is gone or was created after their Pods: kube-apiserver refuses their tokens.

    A token is bound to the UID of its ServiceAccount, and kubelet keeps it for most of an hour.
    """
    created = {name_of(item): item["metadata"]["creationTimestamp"] for item in state.service_accounts or ()}
    for program, kind in ((AGENT, "daemonset"), (CONTROLLER, "deployment")):
        check, pods = ACCOUNT_CHECKS[program], state.pods_of(program)
        restart = f"kubectl -n {state.namespace} rollout restart {kind}/{program}"
        if pods and program not in created:
            text = f"ServiceAccount {program} is missing: kube-apiserver refuses the tokens of its Pods, and no new ones start"
            again = create(state, "antrea.yml").partition("  #")[0]
            yield Finding("", "error", check, text, f"{again}; {restart}")
            continue
        for pod in pods:
            if pod["metadata"].get("creationTimestamp", "9") < created.get(program, ""):
                text = f"ServiceAccount {program} was created again after Pod {name_of(pod)}: kube-apiserver refuses the Pod's token"
                yield Finding(node_of(pod), "error", check, text, restart)


def cluster_dns(state: ClusterState) -> Iterator[Finding]:
    """Yield the Service of the cluster's DNS, if none of its Endpoints is ready."""
    dns = state.dns
    if dns is None or not dns.has_selector or dns.ready:
        return
    namespace = "kube-system"
    text = f"Service {namespace}/kube-dns has no Endpoint that is ready: Pods resolve no names"
    for item in dns.deployments:
        if not item["spec"].get("replicas", 1):
            repair = f"kubectl -n {namespace} scale deployment/{name_of(item)} --replicas=2"
            yield Finding("", "error", DNS, f"{text}; Deployment {name_of(item)} is scaled to 0", repair)
            return
    yield Finding("", "error", DNS, text, f"kubectl -n {namespace} describe pods -l k8s-app=kube-dns")


def pod_problem(
    state: ClusterState, pod: Mapping[str, Any], owner: Mapping[str, Any], kind: str
) -> tuple[str, str] | None:
    """Return why a Pod is not Ready, and the repair; None: it is Ready."""
    name, namespace = name_of(pod), pod["metadata"]["namespace"]
    describe = f"kubectl -n {namespace} describe pod {name}"
    if condition(pod, "Ready").get("status") == "True":
        return None
    if why := state.refusals.get(name):
        text = f"Pod {name} waits for the correction of its configuration, which was refused: {one_line(why)}"
        return text, edit(namespace)
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        text = f"Pod {name} cannot be scheduled: {one_line(scheduled.get('message', ''))}"
        return text, undo(state, owner, kind) or describe
    for status in statuses(pod):
        if problem := _container_problem(state, pod, status):
            text, cause = problem
            if cause in (*IMAGE_REASONS, *TEMPLATE_REASONS):
                image = f"kubectl -n {namespace} set image {kind}/{name_of(owner)} '*=IMAGE'  # IMAGE: one that Nodes can pull"
                return text, undo(state, owner, kind) or (image if cause in IMAGE_REASONS else describe)
            if any(file in text for file in CONFIG_FILES):
                return text, edit(namespace)
            changed = is_changed(owner, kind) and undo(state, owner, kind)
            return text, changed or f"kubectl -n {namespace} logs {name} -c {status['name']} -p"
    if pod.get("status", {}).get("phase") == "Failed":
        return (
            f"Pod {name} has failed: {pod['status'].get('reason', '')} {pod['status'].get('message', '')}",
            describe,
        )
    why = event_of(state, "Pod", name, "Unhealthy") or event_of(state, "Pod", name, "")
    return f"Pod {name} is not Ready: {why or 'it is starting'}", describe


def _container_problem(
    state: ClusterState, pod: Mapping[str, Any], status: Mapping[str, Any]
) -> tuple[str, str] | None:
    """Return why a container does not run, and the reason in one word; None: it runs, or waits for others."""
    reason, message = waiting(status).get("reason", ""), one_line(waiting(status).get("message", ""))
    head = f"container {status['name']} of Pod {name_of(pod)}"
    if reason == "CrashLoopBackOff":
        ended = status.get("lastState", {}).get("terminated", {})
        line = state.log_lines.get(f"{name_of(pod)}/{status['name']}") or ended.get("message", "").strip()
        code = f"exit code {ended.get('exitCode', '?')}"
        last = one_line(line.rpartition("\n")[2]) or "it printed nothing"
        return f"{head} ends at start again and again ({code}): {last}", reason
    if reason in (*IMAGE_REASONS, *TEMPLATE_REASONS):
        return f"{head} cannot start: {reason}: {message or status.get('image', '')}", reason
    terminated = status.get("state", {}).get("terminated", {})
    if terminated.get("exitCode"):
        last = one_line(str(terminated.get("message", "")).strip().rpartition("\n")[2])
        return (
            f"{head} ended with exit code {terminated['exitCode']}: {last or terminated.get('reason', '')}",
            "Terminated",
        )
    return None


def condition(item: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a condition of an object's status; empty: it has none of that type."""
    rows = item.get("status", {}).get("conditions") or ()
    return next((row for row in rows if row.get("type") == kind), {})


def node_of(pod: Mapping[str, Any]) -> str:
    """Return the Node that a Pod runs on, or that the DaemonSet's controller has chosen for it; empty: none."""
    spec = pod["spec"]
    if name := spec.get("nodeName"):
        return str(name)
    required = (
        spec.get("affinity", {})
        .get("nodeAffinity", {})
        .get("requiredDuringSchedulingIgnoredDuringExecution", {})
    )
    for term in required.get("nodeSelectorTerms", ()):
        for row in term.get("matchFields", ()):
            if row.get("key") == "metadata.name" and row.get("values"):
                return str(row["values"][0])
    return ""


def untolerated(node: Mapping[str, Any], tolerations: Any) -> list[str]:
    """Return taints of a Node that keep Pods with these tolerations away."""
    taints = (taint for taint in node["spec"].get("taints") or () if taint["effect"] != "PreferNoSchedule")
    return [
        f"{taint['key']}:{taint['effect']}"
        for taint in taints
        # the DaemonSet's controller adds tolerations of conditions of Nodes
        if not taint["key"].startswith("node.kubernetes.io/")
        and not any(_tolerates(toleration, taint) for toleration in tolerations)
    ]


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return (toleration.get("key"), toleration.get("value", "")) == (taint["key"], taint.get("value", ""))


def event_of(state: ClusterState, kind: str, name: str, reason: str) -> str:
    """Return the message of the newest warning about an object; of ReplicaSets the beginning of the name counts."""
    rows = [
        event
        for event in state.events or ()
        if event.get("involvedObject", {}).get("kind") == kind
        and (event["involvedObject"].get("name", "") == name or (kind == "ReplicaSet" and event["involvedObject"].get("name", "").startswith(name)))
        and event.get("reason") == (reason or event.get("reason"))
    ]  # fmt: skip
    rows.sort(key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
    return one_line(str(rows[-1].get("message", "")))[:MAX_EVENT] if rows else ""
