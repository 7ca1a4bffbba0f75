"""When a Node counts as not heard in a network, by rounds of questions to its neighbours."""

from __future__ import annotations

import pytest

from antrea.features.service_external_ip.agent_part.network_feed import (
    HOLD_SECONDS,
    MAX_HOLD_SECONDS,
    MAX_KNOWN,
    NetworkVerdict,
)

VIP, OTHER = "192.0.2.40", "192.0.2.41"
ASKED = (GATEWAY, NODE) = ("192.0.2.254", "192.0.2.2")


def rounds(verdict: NetworkVerdict, answered: bool, count: int, *, as_owner: bool) -> list[bool | None]:
    found = []
    for _ in range(count):
        verdict.update(ASKED, ASKED[:1] if answered else (), as_owner=as_owner)
        found.append(verdict.answers)
    return found


def test_who_has_never_answered_is_not_missed() -> None:
    assert rounds(NetworkVerdict(silent=False), False, 20, as_owner=True) == [None] * 20


def test_the_owner_is_silent_after_the_others_and_heard_again_before_them() -> None:
    owner, other = NetworkVerdict(silent=False), NetworkVerdict(silent=False)
    assert rounds(owner, True, 1, as_owner=True) == rounds(other, True, 1, as_owner=False) == [True]
    assert rounds(owner, False, 4, as_owner=True) == [True, True, True, False]
    assert rounds(other, False, 2, as_owner=False) == [True, False]
    assert rounds(owner, True, 1, as_owner=True) == [True]
    assert rounds(other, True, 3, as_owner=False) == [False, False, True]


@pytest.mark.parametrize("as_owner", [False, True])
def test_a_round_that_is_lost_now_and_then_changes_nothing(as_owner: bool) -> None:
    verdict = NetworkVerdict(silent=False)
    for _ in range(50):
        assert rounds(verdict, True, 1, as_owner=as_owner) == [True]
        assert rounds(verdict, False, 1, as_owner=as_owner) == [True]


def test_after_a_restart_it_is_as_it_was_until_somebody_answers() -> None:
    verdict = NetworkVerdict(silent=True)
    assert rounds(verdict, False, 3, as_owner=False) == [False] * 3
    assert rounds(verdict, True, 3, as_owner=False) == [False, False, True]


def test_an_address_as_which_nobody_ever_answered_is_not_missed() -> None:
    verdict = NetworkVerdict(silent=False)
    for second in range(60):
        verdict.update_as_owner(VIP, ASKED, (), second)
    assert verdict.unheard == ""


def test_an_address_that_is_no_longer_answered_is_unheard_after_three_rounds() -> None:
    verdict, found = NetworkVerdict(silent=False), []
    verdict.update_as_owner(VIP, ASKED, ASKED, 0.0)
    for _ in range(3):
        verdict.update_as_owner(OTHER, ASKED, ASKED, 0.0)
        verdict.update_as_owner(VIP, ASKED, (), 0.0)
        found.append(verdict.unheard)
    assert found == ["", "", VIP]


def test_the_hold_doubles_while_nobody_answers_and_begins_anew_once_somebody_does() -> None:
    verdict, now = NetworkVerdict(silent=False), 0.0

    def hold() -> float:
        nonlocal now
        began = now
        while verdict.unheard:
            now += 10
            verdict.keep_only((), now)
        return now - began

    def miss() -> None:
        for _ in range(3):
            verdict.update_as_owner(VIP, ASKED, (), now)
        assert verdict.unheard == VIP

    verdict.update_as_owner(VIP, ASKED, ASKED, now)
    found = []
    for _ in range(5):
        miss()
        found.append(hold())
    assert found == [min(HOLD_SECONDS * 2**number, MAX_HOLD_SECONDS) for number in range(5)]
    verdict.update_as_owner(VIP, ASKED, ASKED, now)
    miss()
    assert hold() == HOLD_SECONDS


def test_of_an_address_that_has_gone_no_rounds_are_kept() -> None:
    verdict = NetworkVerdict(silent=False)
    verdict.update_as_owner(VIP, ASKED, ASKED, 0.0)
    for _ in range(2):
        verdict.update_as_owner(VIP, ASKED, (), 0.0)
    verdict.keep_only((OTHER,), 0.0)
    verdict.update_as_owner(VIP, ASKED, (), 0.0)
    assert verdict.unheard == ""


def test_a_gateway_that_answers_no_foreign_sender_is_not_missed_when_the_node_that_did_has_gone() -> None:
    verdict = NetworkVerdict(silent=False)
    verdict.update_as_owner(VIP, ASKED, (NODE,), 0.0)
    for _ in range(10):
        verdict.update_as_owner(VIP, (GATEWAY,), (), 0.0)
    assert verdict.unheard == ""
    for _ in range(3):
        verdict.update_as_owner(VIP, ASKED, (), 0.0)
    assert verdict.unheard == VIP


def test_a_gateway_that_never_answers_is_not_missed_when_the_node_that_did_has_gone() -> None:
    verdict = NetworkVerdict(silent=False)
    verdict.update(ASKED, (NODE,), as_owner=True)
    for _ in range(10):
        verdict.update((GATEWAY,), (), as_owner=True)
    assert verdict.answers is True
    for _ in range(4):
        verdict.update(ASKED, (), as_owner=True)
    assert verdict.answers is False


def test_what_is_kept_of_addresses_that_come_and_go_has_a_bound() -> None:
    verdict = NetworkVerdict(silent=False)
    for number in range(2 * MAX_KNOWN):
        verdict.update_as_owner(f"{number}", ASKED, (NODE,), 0.0)
        verdict.keep_only((f"{number}", VIP), 0.0)
    assert len(verdict._known) <= MAX_KNOWN + 1
