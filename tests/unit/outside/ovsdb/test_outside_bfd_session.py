"""What a BFD session says of the switch at its other end, over sequences that OVS 3.1 showed."""

from __future__ import annotations

import pytest

from antrea.outside.ovsdb.bfd_feed import SIGNALED, BfdSession, BfdStatus

DOWN, HEARD, INIT = (
    BfdStatus("down"),
    BfdStatus("down", "up", "Control Detection Time Expired"),
    BfdStatus("init"),
)
TOLD, UP = BfdStatus("down", "down", SIGNALED), BfdStatus("up", "up")
Step = tuple[float, BfdStatus | None]
"""Seconds, and what OVSDB has then; None: the time has come that was asked for."""


def words(*steps: Step) -> list[tuple[float, bool | None]]:
    """Each word that is new, with the second of it, of a session that looks when it asked to, too."""
    session, found, status, last = BfdSession(), [(0.0, BfdSession().word)], DOWN, 0.0
    for when, news in steps:
        while session.due is not None and session.due < when:
            last = session.due
            session.update(status, last)
            found += [(last, session.word)] * (session.word != found[-1][1])
        status = news or status
        session.update(status, when)
        found += [(when, session.word)] * (session.word != found[-1][1])
    return found[1:]


RISEN: tuple[Step, ...] = ((0, DOWN), (1, INIT), (2, UP))
AFTER: Step = (60, None)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((), [(4, True)]),
        (((3, DOWN), (3.5, INIT)), []),
        (((10, DOWN),), [(4, True), (10, False)]),
        (
            ((10, DOWN), (10.1, HEARD), (11, INIT), (12, UP)),
            [(4, True), (10, False), (10.1, None), (14, True)],
        ),
        (((10, TOLD), (10.5, INIT), (11, UP)), [(4, True), (10, None), (13, True)]),
        (((10, DOWN), (11.9, INIT), (12, DOWN)), [(4, True), (10, False), (11.9, None), (12, False)]),
        (((10, DOWN), (12, INIT), (13, UP)), [(4, True), (10, False), (15, True)]),
        (((10, DOWN), (10.1, INIT)), [(4, True), (10, False), (10.1, None), (14.1, False)]),
        (((10, TOLD),), [(4, True), (10, None), (14, False)]),
        (
            ((10, DOWN), (10.1, INIT), (15, HEARD), (16, UP)),
            [(4, True), (10, False), (10.1, None), (14.1, False), (18, True)],
        ),
        (
            ((10, DOWN), (11, UP), (12, DOWN), (13, UP), (14, DOWN), (15, UP)),
            [(4, True), *((when, None if when % 2 else False) for when in range(10, 16)), (17, True)],
        ),
    ],
    ids=[
        "up once it has been so for 2 s",
        "nothing can be said of what went down before that",
        "silence is down at once",
        "a few packets lost: the other end is heard again while the session comes up",
        "the other end says itself that it missed packets",
        "heard for a moment, then silent again",
        "silent for as long as it takes to be set aside: up again only when the session is",
        "packets go one way only",
        "it said that it missed packets, and nothing more",
        "packets go one way only, until they do not",
        "up and down every second",
    ],
)
def test_the_word_on_a_switch(steps: tuple[Step, ...], expected: list[tuple[float, bool | None]]) -> None:
    assert words(*RISEN, *steps, AFTER) == expected
