"""What goes wrong is logged once, with what it is about; a bug with its traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.engine.error_log import Errors
from antrea.errors import Refused
from antrea.openflow.flow import Flow
from antrea.outside.log.klog import KlogFormatter

if TYPE_CHECKING:
    import pytest


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """As the programs write them, without time and place."""
    return [KlogFormatter().format(record).split("] ", 1)[1] for record in caplog.records]


def test_a_refusal_is_one_line_that_names_what_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    errors = Errors()
    for _ in range(3):
        errors.note("sink FlowSink", (Flow, "classifier"), Refused([1], "OFPFMFC_TABLE_FULL"))
    errors.note("sink FlowSink", (Flow, "output"), "it is not there")
    assert errors.counts == {"sink FlowSink": 4}
    assert lines(caplog) == [
        '"Reconciling failed" source="sink FlowSink" subject=["Flow", "classifier"] err="Refused: OFPFMFC_TABLE_FULL"',
        '"Reconciling failed" source="sink FlowSink" subject=["Flow", "output"] err="it is not there"',
    ]


def test_a_bug_is_told_with_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise KeyError("pod")
    except KeyError as error:
        Errors().once("act Event", error)
    (line,) = lines(caplog)
    assert line.startswith('"Act failed" source="act Event" err="KeyError: \'pod\'"\nTraceback')
    assert "test_engine_error_log.py" in line
