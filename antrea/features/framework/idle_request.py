"""Requests of users that nothing acts on: annotations and objects of features that are off or not built, unknown values.

The registry's table of annotations (`antrea/features/registry/annotations.py`) is judged here, as are kinds of objects.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable  # noqa: TC003 (msgspec reads annotations)
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.apis.shown import one_line
from antrea.features.framework.gate import GATES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.features.framework.gate import EnabledGates

NOT_BUILT, GATE_OFF, NOT_UNDERSTOOD = "FeatureNotBuilt", "FeatureGateDisabled", "AnnotationInvalid"
"""Reasons of Events."""
DOMAIN: Final = "antrea.io"
MAX_VALUE: Final = 64
"""Characters of a value that are shown."""
MAX_UNKNOWN: Final = 8
"""Unknown annotations of one object that are compared with known ones."""
_BY_NAME = {gate.name: gate for gate in GATES}


class Finding(NamedTuple):
    """Reason of an Event, and its text."""

    reason: str
    text: str


class AnnotationRule(NamedTuple):
    """An annotation, the kinds of objects on which it is read, and what it takes to have an effect."""

    name: str
    kinds: tuple[str, ...]
    """Kinds, those of other groups than the core's with their group: Pod, Egress.crd.antrea.io."""
    gate: str = ""
    """The feature gate that turns it on; empty: none does."""
    expected: str = ""
    """The values that have a meaning, for the message."""
    understands: Callable[[str], bool] = lambda _: True
    needs_gate: Callable[[str], bool] = lambda _: True
    """Whether the value asks for what the gate turns on."""
    instead: str = ""
    """A sentence about what happens without the feature."""
    reported: str = ""
    """Other reporter of an unknown value, while the gate is on: the reason of an Event, or `admission`."""
    reported_on: tuple[str, ...] = ()
    """Kinds for which it reports; empty for all."""

    def reports(self, kind: str) -> bool:
        """Return True if a value on an object of this kind that is not understood is reported elsewhere."""
        return bool(self.reported) and (not self.reported_on or kind in self.reported_on)


class ProgramGates(NamedTuple):
    """Gates in the configuration of each program; None if unknown."""

    agent: EnabledGates | None = None
    controller: EnabledGates | None = None


def gate_finding(gate: str, programs: ProgramGates) -> Finding | None:
    """Return why the feature of this gate does nothing; None if it is on, as far as is known."""
    row = _BY_NAME[gate]
    if not row.built:
        return Finding(NOT_BUILT, f"the feature {gate} is not built yet")
    held = {"agent": programs.agent, "controller": programs.controller}
    off = [
        f"antrea-{name}.conf" for name in row.components if (on := held[name]) is not None and gate not in on
    ]
    return Finding(GATE_OFF, f"the feature gate {gate} is off in {' and '.join(off)}") if off else None


def annotation_findings(
    kind: str,
    annotations: Mapping[str, str],
    rules: Mapping[str, AnnotationRule],
    programs: ProgramGates,
) -> Iterator[Finding]:
    """Yield annotations of an object that have no effect; `rules` by name, `kind` as in AnnotationRule."""
    unknown = 0
    for name, value in sorted(annotations.items()):
        if (rule := rules.get(name)) is not None:
            yield from _judged(kind, value, rule, programs)
        elif _is_ours(name) and unknown < MAX_UNKNOWN:
            unknown += 1
            if near := difflib.get_close_matches(name, rules, n=1, cutoff=0.8):
                text = f"annotation {one_line(name)} is not known: did you mean {near[0]}?"
                yield Finding(NOT_UNDERSTOOD, text)


def object_finding(gate: str, programs: ProgramGates) -> Finding | None:
    """Return why nothing acts on objects of a kind with this gate; None if something does."""
    if (finding := gate_finding(gate, programs)) is None:
        return None
    return Finding(finding.reason, f"{finding.text}: nothing acts on this object")


def _is_ours(name: str) -> bool:
    domain = name.partition("/")[0]
    return domain == DOMAIN or domain.endswith(f".{DOMAIN}")


def _judged(kind: str, value: str, rule: AnnotationRule, programs: ProgramGates) -> Iterator[Finding]:
    if kind not in rule.kinds:
        places = ", ".join(place.partition(".")[0] for place in dict.fromkeys(rule.kinds))
        here = kind.partition(".")[0]
        yield Finding(NOT_UNDERSTOOD, f"annotation {rule.name} has no effect on a {here}: it is for {places}")
    elif not rule.reports(kind) and not rule.understands(value):
        shown = one_line(value[:MAX_VALUE])
        text = f"annotation {rule.name}: {shown!r} has no effect: expected is {rule.expected}"
        yield Finding(NOT_UNDERSTOOD, text)
    elif rule.gate and rule.needs_gate(value) and (finding := gate_finding(rule.gate, programs)) is not None:
        instead = f": {rule.instead}" if rule.instead else ""
        yield Finding(finding.reason, f"annotation {rule.name}: {finding.text}{instead}")
