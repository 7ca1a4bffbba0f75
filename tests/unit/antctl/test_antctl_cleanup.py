"""Lines that Pods of `antctl cleanup` print on Nodes, of which one may be somebody else's."""

from __future__ import annotations

import pytest

from antrea.antctl.cleanup.node_pods import MAX_TEXT, Removed


@pytest.mark.parametrize(
    "line",
    ["5", "null", "[]", '"x"', '{"kept": 1}', '{"failed": {}}', "[" * 100_000, "\x1b[2J", "x" * 100_000],
)
def test_antctl_cleanup_takes_any_line_of_a_node_for_its_error(line: str) -> None:
    row = Removed("node-1")
    row.add(line)
    assert (row.removed, row.kept) == ([], [])
    assert row.error == line[:MAX_TEXT]


def test_antctl_cleanup_reads_the_lines_of_its_program() -> None:
    row = Removed("node-1")
    for line in ('{"removed": "a"}', '{"kept": "b", "why": "c"}', '{"done": true}'):
        row.add(line)
    assert (row.removed, row.kept, row.error) == (["a"], ["b: c"], "")
    row.add('{"failed": "d", "why": "e"}')
    assert row.error == "d: e"
