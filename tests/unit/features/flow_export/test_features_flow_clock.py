"""Dates of flow records when the clock of a Node is set forth or back."""

from __future__ import annotations

import pytest
from flow_world import ACTIVE, IDLE, World, entry

from antrea.apis.flow import FlowRecord
from antrea.features.flow_export.connection import DeniedStore


@pytest.mark.parametrize("jump", [3600, -3600])
def test_no_record_ends_before_the_one_before_it_when_the_clock_of_the_node_jumps(jump: int) -> None:
    world, ends, begins = World(), list[float](), list[float]()
    world.poll(0)
    world.poll(1, entry(1))
    for now, clock in ((6, 1000), (11, 1000 + jump), (16, 1000 + jump), (21, 1000)):
        world.clock = clock
        world.poll(now, entry(now), entry(now, port=2000))
        for found in world.store.due(now, 10):
            if found.source_transport_port == 1000:
                ends.append(found.flow_end_seconds)
                begins.append(found.flow_start_seconds)
    assert ends == sorted(set(ends))
    assert set(begins) == {1000}
    assert ends == ([1006, 4611, 4616, 4621] if jump > 0 else [1006, 1011, 1016, 1021])


def test_a_connection_that_is_found_after_the_clock_was_set_began_between_the_polls_by_the_new_time() -> None:
    world = World()
    world.poll(0)
    world.clock -= 500
    world.poll(8, entry(3))
    [found] = world.store.due(14, 10)
    assert (found.flow_start_seconds, found.flow_end_seconds) == (504, 508)


def test_a_denied_connection_does_not_end_before_it_begins_when_the_clock_is_set_back() -> None:
    store = DeniedStore(ACTIVE, IDLE)
    for now, wall in ((0.25, 1000.25), (1.5, 401.5)):
        store.add("a", 60, now, wall, FlowRecord)
    [found] = store.due(6, 10)
    assert (found.start, found.end) == (1000.25, 1001.5)
