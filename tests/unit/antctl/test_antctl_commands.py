"""Commands of antctl: features declare theirs, and no two have one name."""

from __future__ import annotations

import click
import pytest

from antrea.antctl.commands import ACTIONS, DATA_COMMANDS
from antrea.antctl.group import Group
from antrea.antctl.main import antctl
from antrea.antctl.mode import AGENT, CONTROLLER, REMOTE, Mode
from antrea.features import FEATURES
from antrea.features.framework.command import Action, DataCommand
from antrea.features.framework.plug import declared


def test_every_command_that_a_feature_declares_is_one_of_antctl() -> None:
    commands = declared(FEATURES, "antctl", DataCommand, "COMMANDS")
    actions = declared(FEATURES, "antctl", Action, "ACTIONS")
    assert {row for rows in commands.values() for row in rows} < set(DATA_COMMANDS)
    assert {row for rows in actions.values() for row in rows} < set(ACTIONS)


@pytest.mark.parametrize(
    ("mode", "group", "name"),
    [(AGENT, "get", "memberlist"), (CONTROLLER, "get", "nodelatencystats"), (REMOTE, "", "traceflow")],
)
def test_a_command_of_a_feature_is_listed_in_the_modes_that_it_names(
    mode: Mode, group: str, name: str
) -> None:
    root: click.Group = antctl(mode)
    commands = root.commands[group] if group else root
    assert isinstance(commands, click.Group)
    assert name in commands.list_commands(click.Context(commands))


@pytest.mark.parametrize(("name", "aliases"), [("memberlist", ()), ("members", ("ml",)), ("ml", ())])
def test_two_commands_of_one_name_are_refused(name: str, aliases: tuple[str, ...]) -> None:
    group = Group(name="get")
    group.add(click.Command("memberlist"), ("ml",))
    with pytest.raises(ValueError, match=r"antctl get (memberlist|ml): two commands have it"):
        group.add(click.Command(name), aliases)
