"""Writes rights.json of `antctl doctor`: what the chart allows the ServiceAccounts of its programs at kube-apiserver, and by which values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Objects = Mapping[tuple[str, str], Mapping[str, Any]]

ACCOUNTS: Final = ("antrea-agent", "antrea-controller", "flow-aggregator")
AGGREGATOR: Final = "flowAggregator.enable=true"
VALUES: Final = (
    "",
    "controller.replicas=2",
    "featureGates.L7FlowExporter=true",
    "featureGates.BGPPolicy=true",
    "webhooks.labelsMutator.enable=true",
    AGGREGATOR,
    f"{AGGREGATOR},flowAggregator.config.apiServer.authorizeUsers=true",
)
"""Values that add rights, as `helm --set` takes them, each after those that it includes; empty: the chart's own."""
OF_KUBERNETES: Final[Objects] = {
    ("Role", "extension-apiserver-authentication-reader"): {
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "resourceNames": ["extension-apiserver-authentication"],
                "verbs": ["get", "list", "watch"],
            }
        ]
    },
    ("ClusterRole", "system:auth-delegator"): {
        "rules": [
            {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
            {
                "apiGroups": ["authorization.k8s.io"],
                "resources": ["subjectaccessreviews"],
                "verbs": ["create"],
            },
        ]
    },
}
"""Roles that every cluster has and that the chart binds."""
RELEASE: Final = "kube-system"
"""Namespace that the chart is rendered for."""
ANTREA: Final = "{namespace}"
"""Stands for the Namespace that Antrea is installed in."""


class Grant(NamedTuple):
    """A rule that a binding gives to a ServiceAccount."""

    account: str
    namespace: str
    """Of the ServiceAccount."""
    scope: str
    """The Namespace in which the rule holds; empty: all."""
    rule: str
    """JSON."""


def rights(rendered: Mapping[str, Objects]) -> str:
    """Return the file: the rules of each ServiceAccount by scope and by the values that add them. `rendered` has the objects by values."""
    known: set[Grant] = set()
    rows: dict[tuple[str, ...], list[Any]] = {}
    for values, objects in rendered.items():
        for grant in grants(objects):
            if grant not in known:
                known.add(grant)
                rows.setdefault((values, *grant[:-1]), []).append(json.loads(grant.rule))
    keys = ("values", "account", "namespace", "scope")
    listed = [{**dict(zip(keys, place, strict=True)), "rules": rules} for place, rules in rows.items()]
    return json.dumps(listed, indent=1) + "\n"


def grants(objects: Objects) -> Iterator[Grant]:
    """Yield what the bindings of the chart give to ACCOUNTS, in the order of the accounts."""
    found = [grant for item in objects.values() for grant in _of_binding(objects, item)]
    yield from sorted(
        dict.fromkeys(found), key=lambda grant: (ACCOUNTS.index(grant.account), grant.scope != "")
    )


def _of_binding(objects: Objects, item: Mapping[str, Any]) -> Iterator[Grant]:
    if item["kind"] not in ("ClusterRoleBinding", "RoleBinding"):
        return
    role = (item["roleRef"]["kind"], item["roleRef"]["name"])
    where = item["metadata"].get("namespace", "")
    scope = ANTREA if where == RELEASE and role not in OF_KUBERNETES else where
    for subject in item.get("subjects", ()):
        if subject["kind"] == "ServiceAccount" and subject["name"] in ACCOUNTS:
            namespace = subject["namespace"].replace(RELEASE, ANTREA)
            for rule in {**objects, **OF_KUBERNETES}[role]["rules"]:
                yield Grant(subject["name"], namespace, scope, json.dumps(rule, sort_keys=True))
