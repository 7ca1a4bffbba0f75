"""Tools that apply ConfigMap antrea-config again, and with it undo what is edited there: Helm, Argo CD, Flux."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

MARKS: Final = (
    ("annotations", "argocd.argoproj.io/tracking-id", "Argo CD application"),
    ("labels", "argocd.argoproj.io/instance", "Argo CD application"),
    ("labels", "helm.toolkit.fluxcd.io/name", "Flux HelmRelease"),
    ("labels", "kustomize.toolkit.fluxcd.io/name", "Flux Kustomization"),
    ("annotations", "meta.helm.sh/release-name", "Helm release"),
)
"""Marks of objects with the kind of owner that they name; objects of Flux and Argo CD may have Helm's mark as well."""


class ConfigOwner(NamedTuple):
    """The kind of a tool's unit, such as `Helm release`, and its name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    def change(self, namespace: str, values: str) -> str:
        """Return the command that sets `values` there; a comment where a commit does."""
        if self.kind == "Helm release":
            return f"helm -n {quote(namespace)} upgrade {quote(self.name)} CHART --reuse-values -f {values}"
        return f"# commit {values} to the source of {self}"


def config_owner(metadata: Mapping[str, Any]) -> ConfigOwner | None:
    """Return the owner of an object by its metadata; None: nothing marks one."""
    for field, key, kind in MARKS:
        if value := (metadata.get(field) or {}).get(key):
            return ConfigOwner(kind, str(value).partition(":")[0])
    return None
