"""Rights of the programs and of users of antctl: those that they need whatever features there are, and those of features."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from antrea.features import FEATURES
from antrea.features.framework.command import DataCommand
from antrea.features.framework.plug import declared
from antrea.features.framework.rbac import CRD, FOLLOW, READ, Rule
from antrea.features.registry.crds import CRDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

REVIEWS = (
    Rule(
        "who calls the API of this program, and whether they may",
        "authentication.k8s.io",
        ("tokenreviews",),
        ("create",),
    ),
    Rule("", "authorization.k8s.io", ("subjectaccessreviews",), ("create",)),
)
EVENTS = Rule(
    "Events on this program's configuration and on objects of features", "", ("events",), ("create",)
)
_LABELS_MUTATOR = (
    "crdmutator.antrea.io{{ if .Values.webhooks.labelsMutator.enable }}, labelsmutator.antrea.io{{ end }}"
)
_API_SERVICES = ("v1alpha1.stats.antrea.io", "v1beta1.system.antrea.io", "v1beta2.controlplane.antrea.io")
_CONVERTED = tuple(crd.name for crd in CRDS if crd.conversion)
_ADMISSION, _APIS, _CRDS = "admissionregistration.k8s.io", "apiregistration.k8s.io", "apiextensions.k8s.io"
_MUTATING, _VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"
AGENT_RULES: tuple[Rule, ...] = (
    *REVIEWS,
    Rule("Pod CIDRs and addresses of all Nodes", "", ("nodes",), READ),
    Rule("the Node's MAC and transport addresses, as annotations", "", ("nodes/status",), ("patch",)),
    Rule("which Pods of this Node still exist", "", ("pods",), READ),
    Rule(
        "Services and their endpoints; Pods and Services of other Nodes that antctl trace-packet names",
        "",
        ("services",),
        READ,
    ),
    Rule("", "discovery.k8s.io", ("endpointslices",), FOLLOW),
    EVENTS,
    Rule(
        "the state of the agent, in the object that the controller makes for its Node",
        CRD,
        ("antreaagentinfos",),
        ("get", "patch"),
    ),
    Rule("traffic statistics", "controlplane.antrea.io", ("nodestatssummaries",), ("create",)),
    *chain.from_iterable(declared(FEATURES, "rbac", Rule, "AGENT_RULES").values()),
)
CONTROLLER_RULES: tuple[Rule, ...] = (
    *REVIEWS,
    Rule(
        "our CA, for those that call us; a watch of several names cannot be restricted to them",
        _APIS,
        ("apiservices",),
        FOLLOW,
    ),
    Rule("", _APIS, ("apiservices",), ("patch",), _API_SERVICES),
    Rule("", _ADMISSION, (_MUTATING, _VALIDATING), FOLLOW),
    Rule("", _ADMISSION, (_MUTATING,), ("patch",), (_LABELS_MUTATOR,)),
    Rule("", _ADMISSION, (_VALIDATING,), ("patch",), ("crdvalidator.antrea.io",)),
    Rule("", _CRDS, ("customresourcedefinitions",), FOLLOW),
    Rule("", _CRDS, ("customresourcedefinitions",), ("patch",), _CONVERTED),
    EVENTS,
    Rule(
        "the state of the controller",
        CRD,
        ("antreacontrollerinfos",),
        ("get", "create", "patch"),
        ("antrea-controller",),
    ),
    Rule(
        "an AntreaAgentInfo for each Node; whether there are Nodes that an Egress prefers",
        "",
        ("nodes",),
        READ,
    ),
    Rule("", CRD, ("antreaagentinfos",), ("list", "create", "delete")),
    *chain.from_iterable(declared(FEATURES, "rbac", Rule, "CONTROLLER_RULES").values()),
)


PROGRAM_URLS = (
    "/agentinfo",
    "/config",
    "/featuregates",
    "/loglevel",
    "/metrics",
    "/ovsflows",
    "/ovstracing",
    "/podinterfaces",
)
"""Paths of agents' APIs that no feature has."""


def antctl_rules(commands: Iterable[DataCommand]) -> Iterator[Rule]:
    """Yield what commands read of agents, and of the aggregated API from a workstation."""
    rows = [row for row in commands if not row.is_resource or "R" in row.modes]
    resources: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for row in rows:
        if row.is_resource:
            group, _, resource = row.path.split("/")
            resources.setdefault((group, ("create",) if row.body else ("get", "list")), []).append(resource)
    for number, ((group, verbs), names) in enumerate(resources.items()):
        yield Rule("" if number else "what commands of antctl read", group, tuple(names), verbs)
    urls = {row.path for row in rows if not row.is_resource and "A" in row.modes}
    yield Rule("", "", (), ("get",), urls=tuple(sorted({*PROGRAM_URLS, *urls})))


ANTCTL_RULES: tuple[Rule, ...] = (
    *antctl_rules(chain.from_iterable(declared(FEATURES, "antctl", DataCommand, "COMMANDS").values())),
    *chain.from_iterable(declared(FEATURES, "rbac", Rule, "ANTCTL_RULES").values()),
    Rule("antctl supportbundle", "system.antrea.io", ("supportbundles",), ("get", "create")),
    Rule("", "system.antrea.io", ("supportbundles/download",), ("get",)),
    Rule("the version and the state of the controller", "system.antrea.io", ("controllerinfos",), ("get",)),
    Rule(
        "where controller and agents are, and their CAs",
        CRD,
        ("antreaagentinfos", "antreacontrollerinfos"),
        ("get", "list"),
    ),
    Rule(
        "the cluster in a support bundle, and the logs of programs that do not answer",
        "",
        ("nodes",),
        ("get", "list"),
    ),
    Rule("", "", ("pods",), ("list",)),
    Rule("", "apps", ("daemonsets", "deployments", "replicasets"), ("list",)),
    Rule("", "", ("configmaps",), ("get",), ("antrea-ca", "antrea-cluster-identity", "antrea-config")),
)
"""Rights of the ServiceAccount antctl, for users that are not administrators."""
