"""Values, diffs and the replica of OVSDB rows."""

from __future__ import annotations

from typing import Any

import pytest

from antrea.outside.ovsdb.rows import Column, Replica, Row, Shape, watched_schema

SCHEMA: Any = {
    "tables": {
        "Port": {
            "columns": {
                "name": {"type": "string"},
                "tag": {"type": {"key": {"type": "integer", "minInteger": 0}, "min": 0}},
                "interfaces": {"type": {"key": {"type": "uuid"}, "min": 1, "max": "unlimited"}},
                "external_ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
                "statistics": {"type": {"key": "string", "value": "integer", "min": 0, "max": "unlimited"}},
            }
        }
    }
}
WATCHED = {"Port": ("name", "tag", "interfaces", "external_ids", "from_the_future")}


@pytest.mark.parametrize(
    ("declared", "column"),
    [
        ("boolean", Column(Shape.ATOM, False)),
        ({"key": {"type": "integer"}}, Column(Shape.ATOM, 0)),
        ({"key": "uuid", "min": 0, "max": 1}, Column(Shape.OPTIONAL, None)),
        ({"key": "integer", "min": 0, "max": 4096}, Column(Shape.SET, frozenset())),
        ({"key": "string", "value": "integer", "min": 0, "max": "unlimited"}, Column(Shape.MAP, {})),
    ],
)
def test_the_schema_says_what_a_column_holds(declared: Any, column: Column) -> None:
    assert Column.of(declared) == column


@pytest.mark.parametrize(
    ("shape", "wire", "value"),
    [
        (Shape.ATOM, ["uuid", "u1"], "u1"),
        (Shape.OPTIONAL, ["set", []], None),
        (Shape.OPTIONAL, 5, 5),
        (Shape.OPTIONAL, ["set", [5]], 5),
        (Shape.SET, ["uuid", "u1"], frozenset({"u1"})),
        (Shape.SET, ["set", [["uuid", "u1"], ["uuid", "u2"]]], frozenset({"u1", "u2"})),
        (Shape.MAP, ["map", [["a", ["uuid", "u1"]]]], {"a": "u1"}),
    ],
)
def test_a_value_does_not_depend_on_how_many_there_are(shape: Shape, wire: Any, value: Any) -> None:
    assert Column(shape, None).value(wire) == value


@pytest.mark.parametrize(
    ("shape", "old", "diff", "new"),
    [
        (Shape.ATOM, 1, 2, 2),
        (Shape.OPTIONAL, 1, ["set", []], None),
        (Shape.SET, frozenset({1, 2}), ["set", [2, 3]], frozenset({1, 3})),
        (Shape.SET, frozenset({1}), 1, frozenset()),
        (
            Shape.MAP,
            {"same": "1", "gone": "1", "new value": "1"},
            ["map", [["gone", "1"], ["new value", "2"], ["new key", "3"]]],
            {"same": "1", "new value": "2", "new key": "3"},
        ),
    ],
)
def test_a_diff_turns_the_old_value_into_the_new(shape: Shape, old: Any, diff: Any, new: Any) -> None:
    assert Column(shape, None).changed(old, diff) == new


@pytest.fixture
def replica() -> Replica:
    listed = Replica()
    listed.schema = watched_schema(SCHEMA, WATCHED)
    row = {"name": "p1", "tag": 7, "interfaces": ["uuid", "i1"]}
    listed.apply({"Port": {"u1": {"initial": row}, "u2": {"initial": {"name": "p2"}}}}, whole=True)
    return listed


def test_a_row_has_every_watched_column_that_the_server_knows(replica: Replica) -> None:
    columns = {"name": "p1", "tag": 7, "interfaces": frozenset({"i1"}), "external_ids": {}}
    assert replica.row("Port", "p1") == Row("u1", columns)
    assert replica.rows("Port").keys() == {"u1", "u2"}


def test_a_change_is_reported_once_and_kept_under_its_name(replica: Replica) -> None:
    renamed = {"Port": {"u1": {"modify": {"name": "p9", "tag": ["set", []]}}}}
    assert replica.apply(renamed, whole=False) == {("Port", "u1")}
    assert replica.row("Port", "p1") is None
    found = replica.row("Port", "p9")
    assert found is not None
    assert (found["tag"], found["interfaces"]) == (None, frozenset({"i1"}))


def test_a_deleted_row_is_gone_by_name_too(replica: Replica) -> None:
    assert replica.apply({"Port": {"u2": {"delete": None}}}, whole=False) == {("Port", "u2")}
    assert replica.row("Port", "p2") is None
    assert replica.rows("Port").keys() == {"u1"}


def test_a_second_list_reports_only_what_differs(replica: Replica) -> None:
    same = {"initial": {"name": "p1", "tag": 7, "interfaces": ["uuid", "i1"]}}
    assert replica.apply({"Port": {"u1": same, "u3": {"initial": {"name": "p2"}}}}, whole=True) == {
        ("Port", "u2"),
        ("Port", "u3"),
    }
    found = replica.row("Port", "p2")
    assert found is not None
    assert found.uuid == "u3"


def test_a_list_without_a_table_empties_it(replica: Replica) -> None:
    assert replica.apply({}, whole=True) == {("Port", "u1"), ("Port", "u2")}
    assert not replica.rows("Port")
