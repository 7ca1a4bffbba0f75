"""Rights that the ServiceAccounts of agents and controller lack: open watches continue without them until they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from antrea import VERSION
from antrea.antctl.doctor.control_plane.release import release_of
from antrea.antctl.doctor.control_plane.report import RECONCILE
from antrea.antctl.doctor.state import Finding
from antrea.antctl.request import ask_each

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.antctl.doctor.control_plane.cluster_state import ClusterState
    from antrea.antctl.request import Server

CHECK: Final = "missing-rights"
RULES: Final = Path(__file__).with_name("rights.json")
"""Rules of the chart's ClusterRoles and Roles by ServiceAccount and scope, which `make manifests` writes."""
REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
MAX_NAMED: Final = 5
"""Rights that a finding names."""


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


def expected(namespace: str) -> dict[str, list[Right]]:
    """Return the rights that the chart gives by ServiceAccount, where Antrea is installed in `namespace`."""
    accounts: Mapping[str, Mapping[str, list[Mapping[str, list[str]]]]] = json.loads(RULES.read_text())
    return {
        account: [
            right
            for scope, rules in scopes.items()
            for rule in rules
            for right in _rights(rule, namespace if scope == "namespace" else "")
        ]
        for account, scopes in accounts.items()
    }


def _rights(rule: Mapping[str, list[str]], namespace: str) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for name in rule.get("resourceNames", [""]):
                for verb in rule["verbs"]:
                    yield Right(verb, group, resource, name, namespace)


def missing_rights(kubernetes: Server, state: ClusterState) -> Iterator[Finding]:
    """Yield ServiceAccounts that kube-apiserver denies a right. Raises Failure."""
    for account, rights in expected(state.namespace).items():
        user = f"system:serviceaccount:{state.namespace}:{account}"
        answers = ask_each(kubernetes, REVIEWS, [right.review(user) for right in rights])
        missing = [
            str(right)
            for right, answer in zip(rights, answers, strict=True)
            if answer.get("status", {}).get("allowed") is not True
        ]
        if missing:
            more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
            text = f"ServiceAccount {state.namespace}/{account} lacks rights: {', '.join(missing[:MAX_NAMED])}{more}"
            yield Finding("", *_judge(state, text), _repair(state))


def _judge(state: ClusterState, text: str) -> tuple[str, str, str]:
    """Return severity, check and text: another release than that of this antctl may need other rights."""
    running = (state.controller_info or {}).get("version", "")
    if running in ("", f"v{VERSION}"):
        return "error", CHECK, text
    return "warning", CHECK, f"{text}; these are the rights of v{VERSION}, the controller runs {running}"


def _repair(state: ClusterState) -> str:
    if release := release_of(state):
        return f"helm -n {state.namespace} rollback {release.name} {release.revision}"
    return RECONCILE
