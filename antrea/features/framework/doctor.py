"""Declarations of a feature for `antctl doctor`, in module `doctor` of its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from antrea.apis.core import OnlyMetadata

CRD: Final = "/apis/crd.antrea.io"
EDIT_CONFIGURATION: Final = "kubectl -n {namespace} edit configmap antrea-config"
SHOW_GATES: Final = "antctl get featuregates"
"""Repair of an object on which nothing has acted."""


class ConditionCheck(NamedTuple):
    """A condition of AntreaAgentInfo that is a finding while it is present: an element of `CONDITIONS`."""

    check: str
    """Name of the check; several conditions may have the same."""
    condition: str
    severity: Literal["error", "warning"]
    repair: str | Callable[[str], str]
    """Command that repairs it, or a function of the condition's message; {namespace} and {pod} are those of the agent."""

    def command(self, message: str, pod: str) -> str:
        """The repair of a condition with this message of the agent in `pod`, namespace/name."""
        namespace, _, name = pod.partition("/")
        repair = self.repair if isinstance(self.repair, str) else self.repair(message)
        return repair.format(namespace=namespace or "kube-system", pod=name)


class GatedKind(NamedTuple):
    """A kind whose gate agents alone read: an element of `GATED_KINDS`."""

    path: str
    name: str
    gate: str
    ended: Callable[[Mapping[str, Any]], bool] = lambda _: False
    """Whether an agent has acted on an object already."""
    waits: Callable[[Mapping[str, Any]], bool] = lambda _: False
    """Whether the controller alone has written its status: where the gate is off in all agents, the object waits for that."""


class MetadataCheck(NamedTuple):
    """A kind whose objects are judged by their metadata alone: an element of `METADATA_CHECKS`."""

    check: str
    """Name of the check; several kinds may have the same."""
    path: str
    kind: str
    plural: str
    judge: Callable[[OnlyMetadata], str]
    """Return the fault of an object; empty if it has none."""


class ObjectFinding(NamedTuple):
    """A fault that the status of an object names."""

    severity: Literal["error", "warning"]
    finding: str
    repair: str = ""
    """Command; empty: kubectl describes the object."""
    waits: bool = False
    """Nothing acts on the object yet: while its feature gate is off, that is why."""


class ObjectCheck(NamedTuple):
    """A kind whose objects are judged by their status: an element of `OBJECT_CHECKS`."""

    check: str
    path: str
    kind: str
    plural: str
    """Name of the resource for kubectl."""
    judge: Callable[[Mapping[str, Any]], Iterable[ObjectFinding]]
    query: Mapping[str, str] = {}
    """Query of the list, such as a field selector."""


class PolicyKind(NamedTuple):
    """A kind of policies whose conditions show whether they are enforced: an element of `POLICY_KINDS`."""

    path: str
    name: str
    short: str
    """Name of the resource for kubectl."""
    is_always_judged: bool = False
    """Whether the controller writes a condition for each policy that it has read."""


def conditions_of(item: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the conditions of an object by their types."""
    return {
        condition.get("type", ""): condition for condition in item.get("status", {}).get("conditions", ())
    }


def message_of(condition: Mapping[str, Any]) -> str:
    """Return the message of a condition, else its reason."""
    return condition.get("message") or condition.get("reason") or "no reason given"


def with_status(conditions: Mapping[str, Mapping[str, Any]], kind: str, status: str) -> Mapping[str, Any]:
    """Return the condition of type `kind` if it has this status, else an empty mapping."""
    condition = conditions.get(kind, {})
    return condition if condition.get("status") == status else {}


def repair_engine(container: str) -> Callable[[str], str]:
    """Repair of an engine's container, by the message of its condition."""

    def repair(message: str) -> str:
        if f"has no container {container}" in message:
            return f"kubectl -n {{namespace}} patch daemonset antrea-agent --patch-file build/yamls/{container}.yml"
        return f"kubectl -n {{namespace}} logs {{pod}} -c {container}"

    return repair
