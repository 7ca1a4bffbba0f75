"""What the controller makes of a policy, whichever its kind, before it is known which Nodes need it."""

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
"""Peers or exceptions that are taken in before the event loop may run: one policy may have tens of thousands."""


class InternalPolicyFields(Fact, frozen=True):
    """A policy as agents need it."""

    found: cp.NetworkPolicy

    def __hash__(self) -> int:
        # its metadata has mappings
        return hash(self.key)

    @property
    def key(self) -> str:
        return self.found.metadata.name


def flush_on_deny(found: Mapping[str, str]) -> bool:
    """Whether a policy with these annotations cuts connections that it comes to forbid."""
    return found.get(ON_DENY) == FLUSH


NOTHING: dict[str, str] = {}
"""Labels, or annotations, of policies without any: it is never written. One for all, since each dict takes 64 bytes."""


def told_annotations(
    *, flush_on_deny: bool, confirm_seconds: int = 0, audit: AuditMode | None = None
) -> dict[str, str]:
    """Those that are sent to agents."""
    found = {ON_DENY: FLUSH} if flush_on_deny else {}
    if confirm_seconds:
        found[CONFIRM_WITHIN] = f"{confirm_seconds}s"
    if audit is not None and audit.whole:
        found[ENFORCEMENT] = AUDIT
    elif audit is not None and audit.rules:
        found[AUDITED_RULES] = ",".join(audit.rules)
    return found or NOTHING


def in_portions(entries: Iterable[T | None]) -> Iterator[T]:
    """What a unit yields, where None is a place at which the event loop may run.

    The engine looks at the clock when something is yielded: the entry before is yielded again, which changes nothing.
    """
    last: T | None = None
    for one in entries:
        last = last if one is None else one
        if last is not None:
            yield last


def completed(steps: Generator[None, None, T]) -> T:
    """What they return, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as error:
            found: T = error.value
            return found
