"""Feeds whose failure ends the agent are named by strings: each is the name of a feed that there is."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from antrea.agent import assembly
from antrea.agent.assembly import ESSENTIAL_FEEDS, Agent
from antrea.agent.role import KubernetesNode
from antrea.controller import main as controller_main
from antrea.controller.compute import runtime
from antrea.features import FEATURES
from antrea.features.framework.agent_part import SIDE, Part
from antrea.features.framework.plug import module_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

MODULES = [module for name in FEATURES if (module := module_of(name, SIDE))]
ESSENTIAL: list[type[Part]] = [module.PART for module in MODULES if module.PART.essential_feeds]


def names_of_feeds(function: Callable[..., object]) -> set[str]:
    """Keys of the dictionaries in the source of a function that makes feeds."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return {
        key.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


DECISION = Path(__file__).parents[3] / "docs/decisions/0010-isolated-parts.md"


@pytest.mark.parametrize("program", [assembly, runtime, controller_main], ids=lambda one: one.__name__)
def test_every_task_that_ends_a_program_is_named_in_the_decision(program: ModuleType) -> None:
    _, _, ends = DECISION.read_text().partition("| Ends the program | Why |")
    tasks = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(program)))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("create_task")
    ]
    names = [
        str(one.value.value)
        for node in tasks
        for one in node.keywords
        if one.arg == "name" and isinstance(one.value, ast.Constant)
    ]
    assert tasks
    assert [name for name in names if f"`{name}`" not in ends] == []


def test_essential_feeds_of_every_agent_exist() -> None:
    assert names_of_feeds(Agent._feeds) | names_of_feeds(KubernetesNode.feeds) >= ESSENTIAL_FEEDS


@pytest.mark.parametrize("part", ESSENTIAL, ids=lambda part: part.__name__)
def test_essential_feeds_of_a_part_exist(part: type[Part]) -> None:
    assert names_of_feeds(part.feeds) >= part.essential_feeds


def test_parts_with_essential_feeds_are_found() -> None:
    named = {name for part in ESSENTIAL for name in part.essential_feeds}
    assert named >= {"members", "BFD", "claims of external IPs"}
