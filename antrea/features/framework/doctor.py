"""Declarations of a feature for `antctl doctor`, in module `doctor` of its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antrea.apis.core import OnlyMetadata

CRD: Final = "/apis/crd.antrea.io"
EDIT_CONFIGURATION: Final = "kubectl -n {namespace} edit configmap antrea-config"


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


def repair_engine(container: str) -> Callable[[str], str]:
    """Repair of an engine's container, by the message of its condition."""

    def repair(message: str) -> str:
        if f"has no container {container}" in message:
            return f"kubectl -n {{namespace}} patch daemonset antrea-agent --patch-file build/yamls/{container}.yml"
        return f"kubectl -n {{namespace}} logs {{pod}} -c {container}"

    return repair
