"""Auditing of policies and rules: they drop nothing, and what they would drop is counted and logged.

The annotation `antrea.io/enforcement` of a policy decides, else that of its Namespace; without either a policy is enforced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.apis.annotation import AUDIT, AUDITED_RULES, ENFORCE, ENFORCEMENT
from antrea.apis.shown import one_line
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

MAX_LENGTH = 100
"""Maximum number of characters of a value that a message quotes."""


class AuditMode(NamedTuple):
    """Annotations of a policy on auditing."""

    whole: bool = False
    """Whether all of it is audited."""
    rules: tuple[str, ...] = ()
    """Names of the audited rules, if not all are."""
    enforced: bool = False
    """Whether it is enforced whatever its Namespace has, as for an unknown value."""

    def within(self, *, namespace_audits: bool) -> AuditMode:
        """Return the mode in a Namespace that audits its policies, or does not."""
        return AUDITED if namespace_audits and not self.enforced else self

    def has(self, rule: str) -> bool:
        """Whether a rule of this name is audited."""
        return self.whole or rule in self.rules


ENFORCED = AuditMode()
AUDITED = AuditMode(whole=True)


def audits(annotations: Mapping[str, str]) -> bool:
    """Whether an object with these annotations is audited as a whole; with an invalid value it is enforced."""
    return annotations.get(ENFORCEMENT) == AUDIT


def audit_mode(annotations: Mapping[str, str]) -> AuditMode:
    """Read the mode of a policy."""
    if ENFORCEMENT not in annotations and AUDITED_RULES not in annotations:
        return ENFORCED
    names = (name.strip() for name in annotations.get(AUDITED_RULES, "").split(","))
    word = annotations.get(ENFORCEMENT, AUDIT)
    return AuditMode(audits(annotations), tuple(dict.fromkeys(filter(None, names))), word != AUDIT)


def enforcement_doubt(annotations: Mapping[str, str]) -> str:
    """Return why the value of the annotation has no effect; empty if it has."""
    text = annotations.get(ENFORCEMENT, AUDIT)
    if text in (AUDIT, ENFORCE):
        return ""
    return f"{one_line(text[:MAX_LENGTH])!r} is neither {AUDIT!r} nor {ENFORCE!r}"


def unknown_text(doubt: str) -> str:
    """Return the text of an Event on a policy whose kind no webhook of Antrea checks."""
    return f"metadata.annotations[{ENFORCEMENT}]: {doubt}: the policy is enforced"


def check_audit(annotations: Mapping[str, str], rules: Container[str]) -> None:
    """Check the annotations. Raises Invalid."""
    if why := enforcement_doubt(annotations):
        raise Invalid(f"metadata.annotations[{ENFORCEMENT}]", why)
    for name in audit_mode(annotations).rules:
        if name not in rules:
            raise Invalid(
                f"metadata.annotations[{AUDITED_RULES}]",
                f"no rule has the name {one_line(name[:MAX_LENGTH])!r}",
            )
