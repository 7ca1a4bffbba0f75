"""Which hours have to go, and what a configuration with a store must be."""

from __future__ import annotations

import pytest

from antrea.config.flow_aggregator import FlowAggregatorConfig
from antrea.config.load import parse
from antrea.errors import Invalid
from antrea.flow_aggregator import configuration
from antrea.flow_aggregator.flow_table import created
from antrea.flow_aggregator.store_keeper import Partition, surplus

HOURS = [Partition(str(number), 10, 100) for number in range(5)]


@pytest.mark.parametrize(
    ("most", "free", "reserve", "gone"),
    [
        (500, 1000, 50, 0),
        (499, 1000, 50, 1),
        (100, 1000, 50, 4),
        (0, 1000, 50, 5),
        (500, 49, 50, 1),
        (500, 0, 250, 3),
        (500, 0, 10_000, 0),
        (300, 0, 250, 3),
    ],
)
def test_the_oldest_hours_go_until_size_and_disk_are_kept(
    most: int, free: int, reserve: int, gone: int
) -> None:
    """A disk that others have filled costs no hour."""
    assert surplus(HOURS, most, free, reserve) == HOURS[:gone]


def test_hours_are_what_can_be_dropped_unless_there_are_too_many() -> None:
    assert "PARTITION BY toStartOfHour(timeInserted)" in created(744 * 3600)
    for retention in (0, 745 * 3600):
        assert "PARTITION BY toDate(timeInserted)" in created(retention)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{store: {enable: true, retention: 59m}}", "store.retention"),
        ("{store: {enable: true, retention: 745h}}", "store.retention"),
        ("{store: {enable: true, retention: '0'}}", "store.retention"),
        ("{store: {enable: true, directory: flows}}", "store.directory"),
        ("{store: {enable: true, commitInterval: 10ms}}", "store.commitInterval"),
        ("{store: {enable: true}, mode: Proxy}", "store.enable"),
        ("{store: {enable: true}}", "store.enable"),
    ],
)
def test_a_store_that_cannot_be_is_refused_by_its_key(
    text: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration, "is_installed", lambda: False)
    with pytest.raises(Invalid) as refused:
        configuration.accept(parse(FlowAggregatorConfig, text).config)
    assert refused.value.path == path


def test_without_the_engine_the_image_that_has_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "is_installed", lambda: False)
    with pytest.raises(Invalid, match="antrea-python-flow-aggregator"):
        configuration.accept(parse(FlowAggregatorConfig, "{store: {enable: true}}").config)
    monkeypatch.setattr(configuration, "is_installed", lambda: True)
    configuration.accept(parse(FlowAggregatorConfig, "{store: {enable: true}}").config)
