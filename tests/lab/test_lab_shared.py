"""Which modules of the lab's tests run in one process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from shared_lab import Shared

if TYPE_CHECKING:
    import pytest


def item(module: str, *fixtures: str, hidden: str = "") -> pytest.Item:
    """A test as pytest collects it, whose module has a fixture `hidden` of its own."""
    definitions = {
        name: [SimpleNamespace(baseid=f"{module}.py" if name == hidden else "tests/lab")] for name in fixtures
    }
    info = SimpleNamespace(name2fixturedefs=definitions)
    return cast("pytest.Item", SimpleNamespace(nodeid=f"{module}.py::test", _fixtureinfo=info))


def test_modules_that_share_a_lab_are_in_one_group() -> None:
    items = [item("own"), item("a", "plane", "tmp_path"), item("b", "lab"), item("c", "lab"), item("d")]
    groups = Shared("plane", "lab").groups(items)
    assert groups["b.py"] == groups["c.py"]
    assert len({groups[f"{name}.py"] for name in ("own", "a", "b", "d")}) == 4


def test_a_module_that_uses_two_labs_joins_the_groups_of_both() -> None:
    items = [item("a", "plane"), item("b", "lab"), item("c"), item("b"), item("d", "lab", "plane")]
    groups = Shared("plane", "lab").groups(items)
    assert groups["a.py"] == groups["b.py"] == groups["d.py"] != groups["c.py"]


def test_a_lab_of_a_module_that_hides_a_shared_one_joins_nothing() -> None:
    items = [item("a", "lab"), item("b", "lab", "plane", hidden="lab"), item("c", "plane")]
    groups = Shared("plane", "lab").groups(items)
    assert groups["b.py"] == groups["c.py"] != groups["a.py"]


def test_pytest_xdist_knows_the_group_of_each_test(request: pytest.FixtureRequest) -> None:
    """Without it each process would start every shared lab. A run without pytest-xdist has no groups."""
    grouped = getattr(request.config.option, "loadgroup", False)
    assert request.node.nodeid.endswith("@test_lab_shared") == grouped
