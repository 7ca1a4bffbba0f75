"""Every key of a configuration is read, refused, or named as one without effect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

import antrea
from antrea.config.agent import AgentConfig
from antrea.config.controller import ControllerConfig
from antrea.config.idle import IDLE, idle
from antrea.config.load import parse, section_of
from antrea.features.framework.config_validation import (
    AGENT_NOT_BUILT,
    AGENT_RULES,
    CONTROLLER_NOT_BUILT,
    CONTROLLER_RULES,
    ConfigRule,
    UnbuiltKey,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = "\n".join(
    path.read_text()
    for path in Path(antrea.__file__).parent.rglob("*.py")
    if path.parent.name not in ("config", "lab")
)
RULES: tuple[ConfigRule | UnbuiltKey, ...] = (
    *AGENT_RULES,
    *AGENT_NOT_BUILT,
    *CONTROLLER_RULES,
    *CONTROLLER_NOT_BUILT,
)
RULED = {path for rule in RULES for path in (rule.path, *rule.when, *getattr(rule, "unless", ()))}
"""Keys that refusals look at by their paths."""


def keys(kind: type, prefix: str = "", *above: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Path of each, and the names by which code reaches it: its sections' and its own."""
    for field in msgspec.structs.fields(kind):
        section, mark = section_of(field.type)
        names = (*above, field.name)
        if section and not mark:
            yield from keys(section, f"{prefix}{field.encode_name}.", *names)
        else:
            yield prefix + field.encode_name, names


def is_read(names: tuple[str, ...]) -> bool:
    """Several sections have a key `enable`: whoever reads one names its section, too."""
    return all(re.search(rf"\.{name}\b", SOURCE) for name in names)


@pytest.mark.parametrize("kind", [AgentConfig, ControllerConfig])
def test_each_key_that_nobody_reads_is_named_as_one_without_effect(kind: type) -> None:
    unread = {path for path, names in keys(kind) if not is_read(names)} - RULED
    assert {row.path for row in IDLE[kind] if not row.node_type} == unread


def test_keys_without_effect_are_named_once_they_ask_for_something() -> None:
    text = "antreaProxy: {skipServices: [a/b]}\nmulticast: {igmpQueryInterval: 60s}\ndefaultMTU: 1400\n"
    assert idle(parse(AgentConfig, text).config) == (
        "multicast.igmpQueryInterval: has no effect: multicast is not built yet",
    )
    assert idle(AgentConfig()) == idle(ControllerConfig()) == ()


def test_what_upstream_has_on_and_nothing_acts_on_is_named() -> None:
    text = "{hostNetworkAcceleration: {enable: true}, hostNetworkMode: iptables, wireGuard: {port: 1}}"
    assert [line.partition(": ")[0] for line in idle(parse(AgentConfig, text).config)] == [
        "wireGuard.port",
        "hostNetworkAcceleration.enable",
        "hostNetworkMode",
    ]
