"""The screen of `antctl status`, and how it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from antrea import VERSION
from antrea.antctl.doctor.control_plane.cluster_state import ClusterState
from antrea.antctl.doctor.state import Finding
from antrea.antctl.failure import Failure
from antrea.antctl.status import Program, Status, as_tree, screen, status_of, summary, verdict, wait_ready

if TYPE_CHECKING:
    from collections.abc import Iterator

AGENT = Program("antrea-agent", "kube-system", 3, 3, 3, "antrea:v1")
CONTROLLER = Program("antrea-controller", "kube-system", 1, 1, 1, "antrea:v1")
READY = Status(
    "kube-system", (AGENT, CONTROLLER), "v1", {"v1": 3}, 3, 3, 12, {"agent": {"Multicast": False}}, ()
)
ERROR = Finding("", "error", "controller", "scaled to 0", "kubectl scale")


def owner(name: str, status: dict[str, int], **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": name, "image": "antrea:v1"}]}}
    meta = {"name": name, "namespace": "net", "generation": 2}
    return {"metadata": meta, "spec": {"template": template, **spec}, "status": status}


def test_the_screen_has_programs_versions_gates_and_errors() -> None:
    assert screen(READY).splitlines() == [
        "Antrea: ready",
        "",
        "PROGRAM           NAMESPACE   DESIRED READY UPDATED IMAGE    ",
        "antrea-agent      kube-system 3       3     3       antrea:v1",
        "antrea-controller kube-system 1       1     1       antrea:v1",
        "",
        f"Versions: antctl v{VERSION}, controller v1, agents v1 (3)",
        "Reports: 3 of 3 agents have reported within 150 s",
        "Pods: 12 connected by agents",
        "Feature gates of the agent: Multicast=false",
        "Errors and warnings: none",
    ]
    assert "scaled to 0" in screen(READY._replace(findings=(ERROR,)))


def test_the_first_line_says_what_is_lacking() -> None:
    late = READY._replace(
        programs=(AGENT._replace(ready=2), CONTROLLER._replace(updated=0)), findings=(ERROR, ERROR)
    )
    assert verdict(late) == (
        "not ready: antrea-agent has 2 of 3 Pods ready, antrea-controller has 0 of 1 Pods updated, 2 errors"
    )
    assert verdict(READY._replace(findings=(ERROR,))) == "not ready: 1 error"
    assert verdict(READY._replace(programs=())) == "not installed"
    assert screen(READY._replace(programs=())).startswith("Antrea: not installed\n\nVersions: ")


def test_json_has_all_that_is_on_the_screen() -> None:
    tree = as_tree(READY._replace(findings=(ERROR,)))
    assert (tree["ready"], tree["findings"][0]["check"]) == (False, "controller")
    assert tree["versions"] == {"antctl": f"v{VERSION}", "controller": "v1", "agents": {"v1": 3}}
    assert tree["programs"][0]["desired"] == 3


@pytest.mark.parametrize(
    ("status", "is_ready"),
    [
        (READY, True),
        (READY._replace(programs=()), False),
        (READY._replace(programs=(AGENT._replace(ready=2),)), False),
        (READY._replace(programs=(AGENT._replace(updated=0),)), False),
        (READY._replace(findings=(ERROR,)), False),
        (READY._replace(findings=(ERROR._replace(severity="warning"),)), True),
    ],
)
def test_ready_is_all_pods_of_the_newest_template_and_no_error(status: Status, *, is_ready: bool) -> None:
    assert status.is_ready is is_ready


def test_counts_of_an_older_generation_are_not_updated_and_gates_at_their_default_are_left_out() -> None:
    state = ClusterState(
        namespace="net",
        daemon_sets=[
            owner("antrea-agent", {"observedGeneration": 2, "desiredNumberScheduled": 2, "numberReady": 2, "updatedNumberScheduled": 2})
        ],
        deployments=[owner("antrea-controller", {"observedGeneration": 1, "readyReplicas": 1, "updatedReplicas": 1}, replicas=1)],
        config={"antrea-agent.conf": "featureGates: {Egress: false, AntreaProxy: true}", "antrea-controller.conf": "a: ["},
    )  # fmt: skip
    status = status_of(state)
    assert [(one.name, one.desired, one.ready, one.updated) for one in status.programs] == [
        ("antrea-agent", 2, 2, 2), ("antrea-controller", 1, 1, 0),
    ]  # fmt: skip
    assert status.gates == {"agent": {"Egress": False}}


def test_a_cluster_that_cannot_be_read_is_a_failure_with_its_cause() -> None:
    unread = ClusterState(daemon_sets=None, deployments=None, pods=None, unseen={"pods": "refused"})
    with pytest.raises(Failure, match="refused"):
        status_of(unread)


def test_waiting_prints_each_change_once_and_ends_when_ready(capsys: pytest.CaptureFixture[str]) -> None:
    late = READY._replace(programs=(AGENT._replace(ready=2),), findings=(ERROR,))
    looks: Iterator[Status] = iter([late, late, READY])
    assert wait_ready(lambda: next(looks), 60) is READY
    assert capsys.readouterr().err == "waiting: antrea-agent 2 of 3; controller: scaled to 0\n"
    assert wait_ready(lambda: late, 0) is late
    assert summary(READY._replace(programs=())) == "waiting: nothing is installed"
