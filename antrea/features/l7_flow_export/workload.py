"""Workloads with the annotation that is for Pods: rows of the controller, and what the doctor reads without the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from antrea.apis.annotation import L7_EXPORT
from antrea.facts.fact import Fact

if TYPE_CHECKING:
    from antrea.apis.core import OnlyMetadata

MAX_LENGTH: Final = 64
"""Maximum number of characters of a value that are kept."""


class AnnotatedWorkload(Fact, frozen=True):
    """An annotated object of a kind that creates Pods; the feed of that kind writes it."""

    namespace: str
    name: str
    uid: str
    value: str

    kind: ClassVar[str]
    plural: ClassVar[str]
    api_version: ClassVar[str] = "apps/v1"
    template: ClassVar[str] = "spec.template"

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def path(cls) -> str:
        """Path of the collection."""
        return f"/apis/{cls.api_version}/{cls.plural}"


class AnnotatedDeployment(AnnotatedWorkload, frozen=True):
    """A Deployment with the annotation."""

    kind, plural = "Deployment", "deployments"


class AnnotatedReplicaSet(AnnotatedWorkload, frozen=True):
    """A ReplicaSet with the annotation."""

    kind, plural = "ReplicaSet", "replicasets"


class AnnotatedStatefulSet(AnnotatedWorkload, frozen=True):
    """A StatefulSet with the annotation."""

    kind, plural = "StatefulSet", "statefulsets"


class AnnotatedDaemonSet(AnnotatedWorkload, frozen=True):
    """A DaemonSet with the annotation."""

    kind, plural = "DaemonSet", "daemonsets"


class AnnotatedJob(AnnotatedWorkload, frozen=True):
    """A Job with the annotation."""

    kind, plural, api_version = "Job", "jobs", "batch/v1"


class AnnotatedCronJob(AnnotatedWorkload, frozen=True):
    """A CronJob with the annotation."""

    kind, plural, api_version = "CronJob", "cronjobs", "batch/v1"
    template = "spec.jobTemplate.spec.template"


WORKLOADS: Final[tuple[type[AnnotatedWorkload], ...]] = (
    AnnotatedDeployment,
    AnnotatedReplicaSet,
    AnnotatedStatefulSet,
    AnnotatedDaemonSet,
    AnnotatedJob,
    AnnotatedCronJob,
)


def annotated(kind: type[AnnotatedWorkload], stored: OnlyMetadata) -> AnnotatedWorkload | None:
    """Make the row; None without the annotation, and for what another object has made: a Deployment copies its own to its
    ReplicaSets.
    """
    meta = stored.metadata
    value = meta.annotations.get(L7_EXPORT)
    if value is None or meta.owner_references:
        return None
    return kind(meta.namespace, meta.name, meta.uid, value[:MAX_LENGTH])


def no_effect(kind: type[AnnotatedWorkload]) -> str:
    """Return why the annotation has no effect there, and where it has."""
    return (
        f"annotation {L7_EXPORT} has no effect on a {kind.kind}: write it into the template of its Pods, "
        f"{kind.template}.metadata.annotations"
    )
