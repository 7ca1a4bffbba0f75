"""Rights that the ServiceAccounts of Antrea's programs lack: open watches continue without them until they end."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from antrea import VERSION
from antrea.antctl.doctor.control_plane.cluster_state import FLOW_AGGREGATOR, name_of
from antrea.antctl.doctor.control_plane.registration import AGENT_CONF, CONTROLLER_CONF, enabled_gates
from antrea.antctl.doctor.control_plane.release import release_of
from antrea.antctl.doctor.control_plane.report import RECONCILE
from antrea.antctl.doctor.state import Finding
from antrea.antctl.failure import Failure
from antrea.antctl.request import ask_each
from antrea.decoding import guarded
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from antrea.antctl.doctor.control_plane.cluster_state import ClusterState
    from antrea.antctl.request import Server

CHECK: Final = "missing-rights"
AGGREGATOR_CHECK: Final = "flow-aggregator-rights"
CHECKS: Final = (CHECK, AGGREGATOR_CHECK)
RULES: Final = Path(__file__).with_name("rights.json")
"""Rules that the chart gives to ServiceAccounts, by scope and by the values that add them, which `make manifests` writes."""
REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
MAX_NAMED: Final = 5
"""Rights that a finding names."""
SECONDS: Final = 20.0
"""Limit for all rights of a ServiceAccount."""
CONNECTIONS: Final = 4
"""Connections on which the rights of a ServiceAccount are asked for: a cluster may be far away, and each request waits for one answer."""
AGGREGATOR: Final = "flowAggregator.enable=true"
WORKLOADS: Final = "featureGates.L7FlowExporter=true"


class Right(NamedTuple):
    """A right as kube-apiserver is asked for it."""

    verb: str
    group: str
    resource: str
    """With a subresource as `pods/status`."""
    name: str
    namespace: str
    """Empty: in all Namespaces, and of what has none."""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {resource}{f' {self.name}' if self.name else ''}"

    def review(self, user: str) -> dict[str, Any]:
        """Return the SubjectAccessReview of it."""
        resource, _, subresource = self.resource.partition("/")
        attributes = {
            "verb": self.verb, "group": self.group, "resource": resource, "subresource": subresource,
            "name": self.name, "namespace": self.namespace,
        }  # fmt: skip
        spec = {"user": user, "resourceAttributes": attributes}
        return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


class Grant(NamedTuple):
    """Why a ServiceAccount has rights: by the chart's own values, or by `values` that add them, as `helm --set` takes these."""

    namespace: str
    account: str
    values: str

    @property
    def check(self) -> str:
        """The check whose finding names a right that is missing."""
        return AGGREGATOR_CHECK if self.values.startswith(AGGREGATOR) else CHECK


def expected(state: ClusterState) -> dict[Grant, list[Right]]:
    """Return the rights that the chart gives with the values that this cluster uses. Raises Failure."""
    rows: list[Mapping[str, Any]] = json.loads(RULES.read_text())
    rights: dict[Grant, list[Right]] = {}
    for row in rows:
        if not IN_USE[row["values"]](state):
            continue
        namespace, scope = (row[field].format(namespace=state.namespace) for field in ("namespace", "scope"))
        grant = Grant(namespace, row["account"], row["values"])
        for rule in row["rules"]:
            rights.setdefault(grant, []).extend(_rights(rule, scope))
    return rights


def _rights(rule: Mapping[str, list[str]], namespace: str) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for name in rule.get("resourceNames", [""]):
                for verb in rule["verbs"]:
                    yield Right(verb, group, resource, name, namespace)


def _has_aggregator(state: ClusterState) -> bool:
    return any(name_of(item) == FLOW_AGGREGATOR for item in state.deployments or ())


def _authorizes_users(state: ClusterState) -> bool:
    """Return whether the flow aggregator asks kube-apiserver about its users. Raises Failure if its configuration cannot be read."""
    import yaml  # noqa: PLC0415 (start-up time)

    if not _has_aggregator(state):
        return False
    if state.aggregator_config is None:
        raise Failure(state.unseen["aggregator_config"])
    try:
        tree = guarded("flow-aggregator.conf", yaml.safe_load, state.aggregator_config)
    except Invalid:
        return False  # refused, which the check of the flow aggregator names
    section = tree.get("apiServer") if isinstance(tree, dict) else None
    return isinstance(section, dict) and section.get("authorizeUsers") is True


IN_USE: Final[Mapping[str, Callable[[ClusterState], bool]]] = {
    "": lambda _: True,
    "controller.replicas=2": lambda state: (
        ((state.controller() or {}).get("spec") or {}).get("replicas", 1) > 1
    ),
    WORKLOADS: lambda state: "L7FlowExporter" in enabled_gates(state, CONTROLLER_CONF),
    "featureGates.BGPPolicy=true": lambda state: "BGPPolicy" in enabled_gates(state, AGENT_CONF),
    "webhooks.labelsMutator.enable=true": lambda state: "labelsmutator.antrea.io" in (state.webhooks or ()),
    AGGREGATOR: _has_aggregator,
    f"{AGGREGATOR},flowAggregator.config.apiServer.authorizeUsers=true": _authorizes_users,
}
"""Whether a cluster uses values of the chart that add rights, by these values."""


def missing_rights(kubernetes: Server, state: ClusterState) -> Iterator[Finding]:
    """Yield ServiceAccounts that kube-apiserver denies a right. Raises Failure."""
    rights = expected(state)
    with ThreadPoolExecutor(len(rights)) as pool:
        answers = pool.map(partial(_denied, kubernetes), rights, rights.values())
        for grant, denied in zip(rights, answers, strict=True):
            if denied:
                more = f" and {len(denied) - MAX_NAMED} more" if len(denied) > MAX_NAMED else ""
                why = f" that {grant.values} needs" if grant.values else ""
                names = f"{', '.join(denied[:MAX_NAMED])}{more}"
                text = f"ServiceAccount {grant.namespace}/{grant.account} lacks rights{why}: {names}"
                yield Finding("", *_judge(state, grant, text), _repair(state, grant))


def _denied(kubernetes: Server, grant: Grant, rights: Sequence[Right]) -> list[str]:
    """Return the rights that the ServiceAccount does not have. Raises Failure."""
    user = f"system:serviceaccount:{grant.namespace}:{grant.account}"

    def ask(part: Sequence[Right]) -> list[str]:
        answers = ask_each(kubernetes, REVIEWS, [right.review(user) for right in part], limit=SECONDS)
        pairs = zip(part, answers, strict=True)
        return [str(right) for right, answer in pairs if answer.get("status", {}).get("allowed") is not True]

    size = math.ceil(len(rights) / CONNECTIONS)
    parts = [rights[begin : begin + size] for begin in range(0, len(rights), size)]
    with ThreadPoolExecutor(len(parts)) as pool:
        return [denied for group in pool.map(ask, parts) for denied in group]


def _judge(state: ClusterState, grant: Grant, text: str) -> tuple[str, str, str]:
    """Return severity, check and text: another release than that of this antctl may need other rights."""
    running = (state.controller_info or {}).get("version", "")
    if running in ("", f"v{VERSION}"):
        return "error", grant.check, text
    return (
        "warning",
        grant.check,
        f"{text}; these are the rights of v{VERSION}, the controller runs {running}",
    )


def _repair(state: ClusterState, grant: Grant) -> str:
    """Return the command that gives the rights of this release again, and takes none."""
    if release := release_of(state):
        return f"helm -n {state.namespace} rollback {release.name} {release.revision}"
    if not grant.values:
        return RECONCILE
    if grant.values == WORKLOADS:
        return "kubectl apply -f antrea-l7-flow-export-rights.yml"
    render = f"helm template antrea CHART -n {state.namespace} --set {grant.values}"
    return f"{render} | kubectl auth reconcile -f -  # CHART: that of this release"
