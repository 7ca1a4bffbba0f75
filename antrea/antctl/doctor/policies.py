"""Policies that are stored and not enforced: the doctor of the whole cluster reads their statuses.

NetworkPolicies of Kubernetes have none: their port names are looked up among the Pods.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from antrea.antctl.doctor.state import Finding, edit
from antrea.antctl.request import ErrorResponse, Server, ask
from antrea.antctl.supportbundle.cluster import listed
from antrea.apis.shown import one_line
from antrea.errors import Invalid
from antrea.explain.named_port import has_port_names, unknown_port_names
from antrea.explain.objects import objects
from antrea.explain.world import World
from antrea.features import FEATURES
from antrea.features.framework.doctor import PolicyKind
from antrea.features.framework.plug import declared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

CHECK = "policies"
MAX_FINDINGS = 20
"""Findings; the last one counts the rest."""
NOT_ENFORCED = (("Realizable", "False"), ("RealizationFailure", "True"))
"""Type and status of conditions."""
UNKNOWN_PORTS = ("PortNameUnknown", "True")
TRANSLATED_BEFORE = ("NotAtServiceAddresses", "True")
KUBE = "/apis/networking.k8s.io/v1/networkpolicies"
PODS, NAMESPACES = "/api/v1/pods", "/api/v1/namespaces"
KINDS = tuple(chain.from_iterable(declared(FEATURES, "doctor", PolicyKind, "POLICY_KINDS").values()))
"""A cluster may have none of a kind, or its gate may be off."""
JUDGED = "Realizable"


def policies(kubernetes: Server, namespace: str) -> list[Finding]:
    """Find policies that are not enforced; `namespace` is that of Antrea. A failed list is a finding; a kind that does not exist is none."""
    findings = list(islice(_all(kubernetes, namespace), MAX_FINDINGS + 1))
    if len(findings) > MAX_FINDINGS:
        text = f"there are more than {MAX_FINDINGS} such policies"
        findings[MAX_FINDINGS:] = [Finding("", "error", CHECK, text, "kubectl get acnp,annp -A")]
    return findings


def _all(kubernetes: Server, namespace: str) -> Iterator[Finding]:
    for kind in KINDS:
        for policy in _listed(kubernetes, kind.path, kind.name):
            yield from policy if isinstance(policy, list) else _of_policy(policy, kind, namespace)
    yield from _kube(kubernetes)


def _kube(kubernetes: Server) -> Iterator[Finding]:
    """Ports that NetworkPolicies name and no Pod has; Pods are listed only if there are such policies."""
    rows: dict[str, list[Any]] = {"kube_policies": []}
    for policy in _listed(kubernetes, KUBE, "NetworkPolicy of networking.k8s.io"):
        if isinstance(policy, list):
            yield from policy
        else:
            rows["kube_policies"].append(policy)
    try:
        if not any(map(has_port_names, objects(rows).kube_policies)):
            return
        rows |= {"pods": list(listed(kubernetes, PODS)), "namespaces": list(listed(kubernetes, NAMESPACES))}
        world = World(objects(rows))
    except (ErrorResponse, Invalid) as error:
        text = f"the Pods of policies with named ports cannot be read: {error}"
        yield Finding("", "error", CHECK, one_line(text), "")
        return
    for kube_policy, text in unknown_port_names(world):
        space, name = kube_policy.metadata.namespace, kube_policy.metadata.name
        repair = f"kubectl -n {space} edit networkpolicies.networking.k8s.io {name}"
        yield Finding("", "warning", CHECK, f"NetworkPolicy {space}/{name}: {text}", repair)


def _of_policy(policy: Mapping[str, Any], kind: PolicyKind, namespace: str) -> Iterator[Finding]:
    """Find out whether a policy is enforced; without a report of the controller it is not, if its kind always has one."""
    conditions = policy.get("status", {}).get("conditions", ())
    if not kind.is_always_judged or any(condition.get("type") == JUDGED for condition in conditions):
        yield from _unrealizable(policy, kind.name, kind.short, namespace)
        return
    text = f"{kind.name} {policy['metadata']['name']} is not enforced: antrea-controller has not read it"
    yield Finding("", "error", CHECK, text, "antctl get featuregates")


def _listed(kubernetes: Server, path: str, kind: str) -> Iterable[Any]:
    """Objects, or a list of one finding."""
    try:
        items: Iterable[Any] = ask(kubernetes, path, {})["items"]
    except ErrorResponse as error:
        if error.status == 404:
            return ()
        text = f"{kind}: cannot be listed: {error.format_message()}"
        return ([Finding("", "error", CHECK, text, "")],)
    return items


def _unrealizable(policy: Mapping[str, Any], kind: str, short: str, antrea: str) -> Iterator[Finding]:
    meta = policy["metadata"]
    space = meta.get("namespace", "")
    name = f"{space}/{meta['name']}" if space else meta["name"]
    repair = f"kubectl {f'-n {space} ' if space else ''}edit {short} {meta['name']}"
    for condition in policy.get("status", {}).get("conditions", ()):
        judged = (condition.get("type"), condition.get("status"))
        message = one_line(condition.get("message", ""))
        if judged in NOT_ENFORCED:
            text = f"{kind} {name} is not enforced as it is written: {message}"
            yield Finding("", "error", CHECK, text, repair)
        elif judged == UNKNOWN_PORTS:
            yield Finding("", "warning", CHECK, f"{kind} {name}: {message}", repair)
        elif judged == TRANSLATED_BEFORE:
            text = f"{kind} {name} does not hold at addresses of Services, where packets are translated before it is asked: {message}"
            way = "set antreaProxy.proxyAll so that it does, or write policies for the Pods of these Services"
            yield Finding("", "warning", CHECK, f"{text}; {way}", edit(antrea))
