"""Which policies and rules are audited: they drop nothing, and what they would drop is counted and logged.

The annotation `antrea.io/enforcement` of a policy decides, else that of its Namespace; without a word a policy is enforced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.apis.annotation import AUDIT, AUDITED_RULES, ENFORCE, ENFORCEMENT
from antrea.apis.shown import one_line
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

MAX_LENGTH = 100
"""Characters of a value that a message quotes."""


class AuditMode(NamedTuple):
    """The annotations of a policy about audit."""

    whole: bool = False
    """All of it is audited."""
    rules: tuple[str, ...] = ()
    """Names of rules that are, if the whole is not."""
    enforced: bool = False
    """It is enforced whatever its Namespace has: so it is with an unknown word."""

    def within(self, *, namespace_audits: bool) -> AuditMode:
        """The same in a Namespace that audits its policies, or does not."""
        return AUDITED if namespace_audits and not self.enforced else self

    def has(self, rule: str) -> bool:
        """Whether a rule of this name is audited."""
        return self.whole or rule in self.rules


ENFORCED = AuditMode()
AUDITED = AuditMode(whole=True)


def audits(annotations: Mapping[str, str]) -> bool:
    """Whether an object with these annotations is audited as a whole; what cannot be read is enforced."""
    return annotations.get(ENFORCEMENT) == AUDIT


def audit_mode(annotations: Mapping[str, str]) -> AuditMode:
    """Of a policy."""
    if ENFORCEMENT not in annotations and AUDITED_RULES not in annotations:
        return ENFORCED
    names = (name.strip() for name in annotations.get(AUDITED_RULES, "").split(","))
    word = annotations.get(ENFORCEMENT, AUDIT)
    return AuditMode(audits(annotations), tuple(dict.fromkeys(filter(None, names))), word != AUDIT)


def enforcement_doubt(annotations: Mapping[str, str]) -> str:
    """Why the value of the annotation means nothing; empty if it does not."""
    text = annotations.get(ENFORCEMENT, AUDIT)
    if text in (AUDIT, ENFORCE):
        return ""
    return f"{one_line(text[:MAX_LENGTH])!r} is neither {AUDIT!r} nor {ENFORCE!r}"


def unknown_text(doubt: str) -> str:
    """Of an Event on a policy whose kind no webhook of ours checks."""
    return f"metadata.annotations[{ENFORCEMENT}]: {doubt}: the policy is enforced"


def check_audit(annotations: Mapping[str, str], rules: Container[str]) -> None:
    """Raises Invalid."""
    if why := enforcement_doubt(annotations):
        raise Invalid(f"metadata.annotations[{ENFORCEMENT}]", why)
    for name in audit_mode(annotations).rules:
        if name not in rules:
            raise Invalid(
                f"metadata.annotations[{AUDITED_RULES}]",
                f"no rule has the name {one_line(name[:MAX_LENGTH])!r}",
            )
