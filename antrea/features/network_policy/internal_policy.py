"""Internal policy of the controller, whatever the kind of its policy, before the Nodes that need it are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from antrea.apis import controlplane as cp
from antrea.apis.annotation import AUDIT, AUDITED_RULES, CONFIRM_WITHIN, ENFORCEMENT, FLUSH, ON_DENY
from antrea.facts.fact import Fact

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from antrea.features.network_policy.audit_mode import AuditMode

T = TypeVar("T")
PORTION = 32
"""Number of peers or exceptions that are processed before the event loop may run: one policy may have tens of thousands."""


class InternalPolicyFields(Fact, frozen=True):
    """Policy as agents need it."""

    policy: cp.NetworkPolicy

    def __hash__(self) -> int:
        # its metadata has mappings
        return hash(self.key)

    @property
    def key(self) -> str:
        return self.policy.metadata.name


def flush_on_deny(annotations: Mapping[str, str]) -> bool:
    """Whether a policy with these annotations cuts established connections that it forbids."""
    return annotations.get(ON_DENY) == FLUSH


NOTHING: dict[str, str] = {}
"""Labels, or annotations, of policies without any: read-only. One for all, since each dict takes 64 bytes."""


def published_annotations(
    *, flush_on_deny: bool, confirm_seconds: int = 0, audit: AuditMode | None = None
) -> dict[str, str]:
    """Return the annotations that are sent to agents."""
    annotations = {ON_DENY: FLUSH} if flush_on_deny else {}
    if confirm_seconds:
        annotations[CONFIRM_WITHIN] = f"{confirm_seconds}s"
    if audit is not None and audit.whole:
        annotations[ENFORCEMENT] = AUDIT
    elif audit is not None and audit.rules:
        annotations[AUDITED_RULES] = ",".join(audit.rules)
    return annotations or NOTHING


def in_portions(entries: Iterable[T | None]) -> Iterator[T]:
    """Yield the entries of a unit, where None marks a point at which the event loop may run.

    The engine checks the clock when something is yielded: the entry before is yielded again, which changes nothing.
    """
    last: T | None = None
    for entry in entries:
        last = last if entry is None else entry
        if last is not None:
            yield last


def completed(steps: Generator[None, None, T]) -> T:
    """Run the steps without a pause, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as error:
            result: T = error.value
            return result
