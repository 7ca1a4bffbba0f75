"""Our controller on a real kube-apiserver answers each recorded command as upstream's did ($ANTREA_GOLDEN).

What was applied and posted there is applied and posted here, phase by phase; UIDs are exchanged, and nothing is known of names of files but
that a folder is a phase. `replay_difference` has what differs on purpose. An answer that changes has to be as recorded at some moment.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import pytest
import recorded_cluster
from controller_process import controller_beside
from own_lab import own_lab
from recording import GOLDEN, RAW, answers, key, of_kind
from replay import Answer, Replay, agrees, changes, commands, reads, recorded
from replay_difference import reduced

from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recording import Recording

pytestmark = [
    pytest.mark.wide,
    pytest.mark.skipif(not GOLDEN.is_dir(), reason="ANTREA_GOLDEN names no recorded answers"),
]
LISTED = ("get", "controlplane", "groups", "evaluation", "http", "system")
FOLDERS = ("fresh", *LISTED, "get-after-watch", "stats", "agent", "changes")
ASKED = [
    one for one in answers(*(name for name in FOLDERS if (RAW / name).is_dir())) if reads(one) or changes(one)
]


def by_groups(one: Recording) -> bool:
    """What policies hold for a Pod: upstream's does not find those that name Groups, so it is asked when these are gone."""
    return any("NetworkPolicyEvaluation" in word or "/endpoint?" in word for word in one.words)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Answer]]]:
    """Our answers by recording."""
    with (
        own_lab("r", Settings(nodes=0)) as lab,
        controller_beside(lab, tmp_path_factory.mktemp("controller")) as controller,
        contextlib.closing(Replay(controller)) as replay,
    ):
        tiers = "/apis/crd.antrea.io/v1beta1/tiers"
        wait_for("the default Tiers", lambda: len(lab.api.items(tiers)) == 6, seconds=60, step=0.2)
        replay.same_uids()
        replay.ask("fresh")
        recorded_cluster.fill(replay.api)
        replay.same_uids()
        listed = [one for one in answers(*LISTED) if reads(one)]
        replay.settle([one for one in listed if not by_groups(one)])
        for one in commands("watch"):
            replay.do(one)
        replay.ask("get-after-watch")
        replay.act("stats")
        replay.act("agent")
        replay.steps("changes")
        for kind in ("ClusterNetworkPolicy", "NetworkPolicy"):
            for policy in (one for one in of_kind(kind) if '"group":' in json.dumps(one["spec"])):
                answer = replay.api.call("DELETE", f"{recorded_cluster.path(policy)}/{key(policy)[1]}")
                assert answer.status == 200, answer
        replay.settle([one for one in listed if by_groups(one)])
        yield replay.given


@pytest.mark.parametrize("one", [pytest.param(one, id=one.name) for one in ASKED])
def test_a_recorded_command_is_answered_as_upstreams_controller_did(
    given: dict[str, list[Answer]], one: Recording
) -> None:
    found = given[one.name]
    if not agrees(one, found):
        # shows what differs
        assert reduced(one, found[-1]) == reduced(one, recorded(one))
        raise AssertionError(f"{found[-1]} is not the answer that is expected instead of upstream's")
