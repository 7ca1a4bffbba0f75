"""The chart's templates/_refusals.tpl: values that no program takes or can do, by the rules of the programs themselves.

Agents and controllers refuse such a configuration (antrea/features/framework/config_validation.py); the chart refuses its values
before there is a Pod, and names every one of them. A rule that looks at more than single values is left to the programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.features.framework.config_validation import (
    AGENT_NOT_BUILT,
    AGENT_RULES,
    CONTROLLER_NOT_BUILT,
    CONTROLLER_RULES,
    GATE_KEYS,
    ConfigRule,
    UnbuiltKey,
)
from antrea.features.framework.gate import GATES, STAGE_SWITCHES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from antrea.config.shape import Shape

UPSTREAM = {
    "agent.antreaSysctlInit.enable": (
        "false",
        "is not built: set rp_filter of antrea-gw0 in a file below /etc/sysctl.d of each Node",
    ),
    "testing.simulator.enable": (
        "false",
        "is not built: agents of a simulated cluster are a program of Antrea's own",
    ),
    "testing.coverage": ("false", "is not built: it is for Antrea's own tests"),
}
"""Values of upstream's chart that have no counterpart, with the only value that they may have."""


class ValueShape(NamedTuple):
    """What the text of a value, or each text of a list, has to look like."""

    path: str
    shape: Shape
    is_list: bool


def refusals(
    value_path: Callable[[str], str], known: Callable[[str], bool], shapes: Iterable[ValueShape]
) -> Iterator[str]:
    """Yield the lines of a template that yields a YAML list of sentences.

    `value_path` gives the path among the chart's values of a key of a configuration file, `known` whether the chart has it.
    """
    yield from _shapes(list(shapes))
    for path, (only, why) in UPSTREAM.items():
        yield _line(
            f"ne (toString (dig {_quoted_path(path)} {only} .Values.AsMap)) {_literal(only)}", path, why
        )
    yield from _gates()
    rules: tuple[ConfigRule | UnbuiltKey, ...] = (
        *AGENT_RULES,
        *CONTROLLER_RULES,
        *AGENT_NOT_BUILT,
        *CONTROLLER_NOT_BUILT,
    )
    for rule in rules:
        if isinstance(rule, ConfigRule) and rule.check:
            if rule.values:
                yield _line(rule.values, value_path(rule.path), rule.reason)
            continue
        keys = [rule.path, *rule.when, *(rule.unless if isinstance(rule, ConfigRule) else ())]
        if all(key.startswith(GATE_KEYS) or known(value_path(key)) or key == "nodeType" for key in keys):
            if "nodeType" in rule.when and "k8sNode" not in rule.when["nodeType"]:
                continue  # a machine outside the cluster has no chart
            yield _line(_condition(rule, value_path), value_path(rule.path), rule.reason)


def _shapes(values: list[ValueShape]) -> Iterator[str]:
    """Yield the regular expressions by what a text is, and the lines for each value."""
    yield "{{- $patterns := dict }}"
    for name, pattern in {value.shape.name: value.shape.pattern for value in values}.items():
        yield f"{{{{- $_ := set $patterns {_literal(name)} {_literal(f'^({pattern})?$')} }}}}"
    yield from map(_shape, values)


def _shape(value: ValueShape) -> str:
    """The lines for a text of another shape; an empty one stands for the default."""
    wrong = f"not (regexMatch (get $patterns {_literal(value.shape.name)}) $text)"
    if value.shape.is_range:
        first, last = (f'(splitList "-" $text | {place} | atoi)' for place in ("first", "last"))
        wrong = f"or ({wrong}) (and $text (ge {first} {last}))"
    at = f"dig {_quoted_path(value.path)}"
    each = (
        f"range $index, $text := {at} (list) .Values.AsMap"
        if value.is_list
        else f'with $text := {at} "" .Values.AsMap'
    )
    name = f'(printf "{value.path}[%d]" $index)' if value.is_list else _literal(value.path)
    sentence = f"printf \"%s: '%v' is not %s\" {name} $text {_literal(value.shape.name)}"
    return f"{{{{- {each} }}}}\n{{{{- if {wrong} }}}}\n- {{{{ {sentence} | quote }}}}\n{{{{- end }}}}\n{{{{- end }}}}"


def _condition(rule: ConfigRule | UnbuiltKey, value_path: Callable[[str], str]) -> str:
    when = [_in(value_path(key), values) for key, values in rule.when.items() if key != "nodeType"]
    if isinstance(rule, UnbuiltKey):
        return _all([*when, f"not ({_in(value_path(rule.path), rule.built)})"])
    possible = [_in(value_path(key), values) for key, values in rule.unless.items()]
    if rule.gate:
        possible.append(_gate_on(rule.gate))
    return _all([*when, f"not ({_all(possible)})"] if possible else when)


def _gates() -> Iterator[str]:
    for gate in sorted(GATES, key=lambda gate: gate.name):
        path = f"{GATE_KEYS}{gate.name}"
        if not gate.built:
            yield _line(
                f"get .Values.featureGates {_literal(gate.name)}",
                path,
                "the feature is not built yet, so it cannot be enabled",
            )
        elif gate.locked:
            other = f"ne (toString (get .Values.featureGates {_literal(gate.name)})) {_literal(str(gate.default).lower())}"
            yield _line(
                f"and (hasKey .Values.featureGates {_literal(gate.name)}) ({other})",
                path,
                f"is locked to {str(gate.default).lower()}",
            )
    for switch, stage in STAGE_SWITCHES.items():
        unbuilt = [gate.name for gate in GATES if gate.stage == stage and not gate.built]
        if unbuilt:
            off = _all([f"hasKey .Values.featureGates {_literal(name)}" for name in unbuilt])
            why = f"turns on features that are not built yet: {', '.join(unbuilt)}; name the gates that are wanted, or set these to false"
            yield _line(
                f"and (get .Values.featureGates {_literal(switch)}) (not ({off}))",
                f"{GATE_KEYS}{switch}",
                why,
            )


def _gate_on(name: str) -> str:
    [gate] = [gate for gate in GATES if gate.name == name]
    default = str(gate.default and gate.built).lower()
    return f'eq (toString (dig {_literal(name)} {default} .Values.featureGates)) "true"'


def _in(path: str, values: tuple[Any, ...]) -> str:
    """A condition that the value at `path` is one of `values`; a value that is unset has the default, which every chart has."""
    if path.startswith(GATE_KEYS):
        on = _gate_on(path.removeprefix(GATE_KEYS))
        return on if values == (True,) else f"not ({on})"
    texts = {(): "[]", True: "true", False: "false"}
    listed = " ".join(_literal(texts.get(value, value)) for value in values)
    return f"has (toString .Values.{path}) (list {listed})"


def _all(conditions: list[str]) -> str:
    if len(conditions) == 1:
        return conditions[0]
    return "and " + " ".join(f"({condition})" for condition in conditions)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _quoted_path(path: str) -> str:
    return " ".join(map(_literal, path.split(".")))


def _line(condition: str, path: str, why: str) -> str:
    return f"{{{{- if {condition} }}}}\n- {{{{ {_literal(f'{path}: {why}')} | quote }}}}\n{{{{- end }}}}"


def template(
    value_path: Callable[[str], str],
    known: Callable[[str], bool],
    shapes: Iterable[ValueShape],
    head: str,
) -> str:
    """The text of templates/_refusals.tpl."""
    lines = "\n".join(refusals(value_path, known, shapes))
    return f'{{{{/* {head} */}}}}\n{{{{- define "antrea.refusals" -}}}}\n{lines}\n{{{{- end -}}}}\n'
