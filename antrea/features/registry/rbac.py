"""Rights of the programs at kube-apiserver: those that they need whatever features there are, and those of features."""

from __future__ import annotations

from itertools import chain

from antrea.features import FEATURES
from antrea.features.framework.plug import declared
from antrea.features.framework.rbac import CRD, FOLLOW, READ, Rule
from antrea.features.registry.crds import CRDS

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
