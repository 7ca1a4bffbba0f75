"""The one list of features: each is a folder, nothing that a folder declares is forgotten, and faults in it are named."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import antrea.features
from antrea.features import FEATURES
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.framework.agent_part import Part
from antrea.features.framework.controller_part import ControllerPart
from antrea.features.framework.plug import declared, merged, module_of

FOLDER = Path(antrea.features.__file__).parent
SIDES = ("agent", "controller", "admission", "conversion", "disabled")
PROGRAMS = ("agent", "controller")
ROOT = FOLDER.parents[1]
SHARED = {
    "antrea/agent/node/bootstrap.py": {"antrea.features.pod_connectivity.tunnel"},
    "antrea/controller/apiserver/endpoint_query.py": {"antrea.features.network_policy.controller.peer"},
    "antrea/controller/compute/publish_sink.py": {
        "antrea.features.grouping.member",
        "antrea.features.grouping.publication",
    },
    "antrea/controller/compute/runtime.py": {"antrea.features.grouping.publication"},
}
"""What a program shares with a feature and is not its effect: entries that a sink takes, the port that is there first."""
SHELVES = {"framework", "registry"}
"""Folders that are no features: what features are written with, and what collects them."""


def test_plug_every_folder_of_a_feature_is_listed_once() -> None:
    folders = {path.parent.name for path in FOLDER.glob("*/__init__.py")} - SHELVES
    assert sorted(FEATURES) == sorted(folders)


@pytest.mark.parametrize("name", FEATURES)
def test_plug_every_module_that_is_loaded_declares_something(name: str) -> None:
    found = {side: module for side in SIDES if (module := module_of(name, side))}
    assert found
    for side, module in found.items():
        attribute = {"admission": "WEBHOOKS", "conversion": "CONVERSIONS"}.get(side, "FEATURES")
        assert getattr(module, attribute), f"{module.__name__} defines no {attribute}"


def test_plug_refuses_what_is_not_declared_as_it_must_be() -> None:
    with pytest.raises(TypeError, match=r"ip_pool\.conversion\.CONVERSIONS must be a tuple of AgentFeature"):
        declared(("ip_pool",), "conversion", AgentFeature, "CONVERSIONS")


def test_plug_a_name_without_a_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="no feature is in antrea/features/nowhere"):
        declared(("nowhere",), "agent", AgentFeature)


def imports(path: Path) -> set[str]:
    """Modules of features that this module names."""
    places = tuple(f"antrea.features.{name}." for name in FEATURES)
    return {module for module, name in imported(path) if f"{module}.{name}.".startswith(places)}


def imported(path: Path) -> set[tuple[str, str]]:
    """Modules that a module imports, each with what it takes of it."""
    found = set[tuple[str, str]]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {(node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
    return found


def test_plug_a_program_imports_no_module_of_a_feature() -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for program in PROGRAMS
        for path in sorted((ROOT / "antrea" / program).rglob("*.py"))
        if (names := imports(path))
    }
    assert found == SHARED


@pytest.mark.parametrize(("side", "kind"), [("agent_part", Part), ("controller_part", ControllerPart)])
def test_plug_every_part_makes_a_part(side: str, kind: type) -> None:
    modules = [module for name in FEATURES if (module := module_of(name, side))]
    assert len(modules) > 5
    assert all(issubclass(module.PART, kind) for module in modules)


def test_plug_pure_modules_of_features_import_no_part() -> None:
    """Only modules and folders whose names end with _part may have effects: import-linter has the rest of this rule."""
    found = {
        f"{path.relative_to(FOLDER)}: {name}"
        for path in FOLDER.rglob("*.py")
        if not any(part.endswith("_part") for part in path.relative_to(FOLDER).with_suffix("").parts)
        for name in map(".".join, imported(path))
        if name.startswith("antrea.features.") and any(part.endswith("_part") for part in name.split("."))
    }
    assert found == set()


def test_plug_what_features_are_written_with_names_no_feature() -> None:
    found = {path.name: names for path in (FOLDER / "framework").glob("*.py") if (names := imports(path))}
    assert found == {}


def test_plug_two_parts_cannot_have_the_same_path_or_act() -> None:
    assert merged("path", ({"/a": 1}, {}, {"/b": 2})) == {"/a": 1, "/b": 2}
    with pytest.raises(ValueError, match="path /a: two parts have it"):
        merged("path", ({"/a": 1}, {"/a": 1}))


@pytest.mark.parametrize("part", [Part, ControllerPart])
def test_plug_the_recipe_names_all_that_a_part_may_override(part: type) -> None:
    recipe = (ROOT / "docs" / "architecture.md").read_text().partition("## Add a feature")[2]
    assert [name for name in vars(part) if name[0] != "_" and f"`{name}`" not in recipe] == []
