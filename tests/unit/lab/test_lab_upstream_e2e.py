"""What a lab runs of upstream's end-to-end suite, what its output means, and how its `docker` is answered."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from antrea.errors import Invalid
from lab import docker_command, upstream_e2e, upstream_e2e_flows
from lab.conformance import Outcome, Spec
from lab.topology import standard
from lab.upstream_e2e import LeftOut, Selection

if TYPE_CHECKING:
    from pathlib import Path

OUTPUT = """time="2026" level=info msg="Creating K8s ClientSet"
=== RUN   TestOne
    fixtures.go:284: Creating 'testone-x' K8s Namespace
=== RUN   TestOne/Group
=== RUN   TestOne/Group/Case=Good
=== RUN   TestOne/Group/Case=Bad
    one_test.go:50: First words
    one_test.go:51:
        \tError Trace:\t/one_test.go:51
        \tError:      \tNot equal:
        \t            \texpected: 1
=== NAME  TestOne/Group
=== RUN   TestOne/Group/Case=Away
    fixtures.go:93: Skipping test as it needs more
--- FAIL: TestOne (30.10s)
    --- FAIL: TestOne/Group (29.00s)
        --- PASS: TestOne/Group/Case=Good (5.25s)
        --- FAIL: TestOne/Group/Case=Bad (7.00s)
        --- SKIP: TestOne/Group/Case=Away (0.00s)
FAIL
"""
ALONE = """=== RUN   TestOne
=== RUN   TestOne/Group
=== RUN   TestOne/Group/Case=Bad
--- PASS: TestOne (9.00s)
    --- PASS: TestOne/Group (8.00s)
        --- PASS: TestOne/Group/Case=Bad (6.00s)
PASS
"""
DIED = """=== RUN   TestTwo
=== RUN   TestTwo/slow
panic: test timed out after 1s
"""
SET_UP = """=== RUN   TestTwo
    two_test.go:12: Error when setting up test: no
--- FAIL: TestTwo (1.00s)
"""
WHY = "First words Error: Not equal: expected: 1"
BAD = "TestOne/Group/Case=Bad"
LISTS = [upstream_e2e.LIST.with_name(name) for name in ("upstream_e2e.yaml", "upstream_e2e_main.yaml")]
CHOSEN = Selection("v1", ("TestOne", "TestTwo"), (LeftOut("TestOne/Group/Case=Never", "not built"),))


def put(place: Path, test: str, run: int, text: str) -> None:
    folder = place / test / f"run-{run:03}"
    folder.mkdir(parents=True)
    (folder / "output.log").write_text(text)
    (folder / "commit").write_text(f"commit of {test}")


def test_the_output_says_what_came_of_each_test_without_subtests() -> None:
    assert upstream_e2e.read(OUTPUT.splitlines()) == {
        "TestOne/Group/Case=Good": Outcome("passed", 5.25),
        BAD: Outcome("failed", 7, WHY),
        "TestOne/Group/Case=Away": Outcome("skipped", 0, "Skipping test as it needs more"),
    }


def test_what_did_not_end_and_a_test_that_failed_before_its_subtests_are_shown() -> None:
    assert upstream_e2e.read(DIED.splitlines()) == {"TestTwo/slow": Outcome("not finished", 0)}
    why = "Error when setting up test: no"
    assert upstream_e2e.read(SET_UP.splitlines()) == {"TestTwo": Outcome("failed", 1, why)}


def test_all_runs_of_a_test_count_and_the_last_one_decides(tmp_path: Path) -> None:
    put(tmp_path, "TestOne", 1, OUTPUT)
    put(tmp_path, "TestOne", 2, ALONE)
    put(tmp_path, "TestTwo", 1, DIED)
    found = upstream_e2e.specs(tmp_path, CHOSEN)
    assert [(spec.name, spec.result) for spec in found] == [
        ("TestOne/Group/Case=Good", "passed"),
        (BAD, "passed (before: failed)"),
        ("TestOne/Group/Case=Away", "skipped"),
        ("TestTwo/slow", "not finished"),
    ]
    assert [spec.settled for spec in found] == [True, True, True, False]
    assert found[2] == Spec("TestOne/Group/Case=Away", skipped="Skipping test as it needs more")
    assert upstream_e2e.commits(tmp_path, CHOSEN) == ["commit of TestOne", "commit of TestTwo"]


def test_a_result_of_what_is_left_out_meanwhile_does_not_count(tmp_path: Path) -> None:
    put(tmp_path, "TestOne", 1, OUTPUT)
    later = Selection("v1", ("TestOne",), (LeftOut("TestOne/Group/Case=[BG]", "not built"),))
    assert [spec.name for spec in upstream_e2e.specs(tmp_path, later)] == ["TestOne/Group/Case=Away"]
    assert not later.leaves_out("TestOne/Group")


def test_one_pattern_finds_exactly_the_tests_it_is_made_of() -> None:
    pattern = upstream_e2e.exactly([BAD, "TestTwo/a.b"])
    assert pattern == "^TestOne$/^Group$/^Case=Bad$|^TestTwo$/^a\\.b$"
    assert upstream_e2e.arguments(pattern, CHOSEN.skip, seconds=60) == [
        "-provider=kind",
        "-deploy-antrea=false",
        "-prometheus",
        "-networkpolicy-evaluation",
        "-flow-visibility",
        "-test.v",
        "-test.timeout=60s",
        f"-test.run={pattern}",
        "-test.skip=TestOne/Group/Case=Never",
    ]


@pytest.mark.parametrize("file", LISTS, ids=lambda file: file.name)
def test_the_committed_selections_give_a_reason_for_each_line(file: Path) -> None:
    chosen = upstream_e2e.selection(file)
    assert len(set(chosen.tests)) == len(chosen.tests)
    for skip in chosen.skip:
        assert re.compile(skip.match)
        assert len(skip.why) > 10
        assert skip.match.split("/")[0] in chosen.tests
    assert chosen.of([]) == chosen


def test_a_selection_is_narrowed_by_the_names_of_tests() -> None:
    assert upstream_e2e.selection().of(["^TestEgress$"]).tests == ("TestEgress",)


def test_what_labs_of_one_family_leave_out_runs_in_one_of_both() -> None:
    skip = LeftOut("TestOne", "one line of two", ("ipv4", "ipv6"))
    chosen = Selection("v1", ("TestOne",), (skip, LeftOut("TestTwo", "not built")))
    assert chosen.inside("ipv6") == chosen
    assert [one.match for one in chosen.inside("dual").skip] == ["TestTwo"]


def test_a_selection_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("tests: [TestOne]\nother: 1\n")
    with pytest.raises(Invalid, match=r"list.yaml: .*other"):
        upstream_e2e.selection(tmp_path / "list.yaml")


def test_an_aggregator_of_another_namespace_shares_no_object_with_the_first() -> None:
    role = {"kind": "ClusterRole", "name": "flow-aggregator-role"}
    subject = {"kind": "ServiceAccount", "name": "flow-aggregator", "namespace": "flow-aggregator"}
    agents = {"kind": "ServiceAccount", "name": "antrea-agent", "namespace": "kube-system"}
    objects: list[dict[str, Any]] = [
        {"kind": "Namespace", "metadata": {"name": "flow-aggregator"}},
        {"kind": "ClusterRole", "metadata": {"name": "flow-aggregator-role"}},
        {"kind": "ClusterRoleBinding", "metadata": {"name": "b"}, "roleRef": role, "subjects": [subject]},
        {
            "kind": "RoleBinding",
            "metadata": {"name": "b", "namespace": "flow-aggregator"},
            "roleRef": role | {"kind": "Role"},
            "subjects": [agents],
        },
    ]
    assert upstream_e2e_flows.in_namespace(objects, "other") == [
        {"kind": "Namespace", "metadata": {"name": "other"}},
        {"kind": "ClusterRole", "metadata": {"name": "other-flow-aggregator-role"}},
        {
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "other-b"},
            "roleRef": role | {"name": "other-flow-aggregator-role"},
            "subjects": [subject | {"namespace": "other"}],
        },
        {
            "kind": "RoleBinding",
            "metadata": {"name": "b", "namespace": "other"},
            "roleRef": role | {"kind": "Role"},
            "subjects": [agents],
        },
    ]
    assert objects[0]["metadata"]["name"] == subject["namespace"] == "flow-aggregator"


def test_what_flow_visibility_tests_need_comes_with_them_alone() -> None:
    chosen = upstream_e2e.selection()
    assert upstream_e2e_flows.wanted(chosen.tests)
    assert not upstream_e2e_flows.wanted(chosen.of(["^TestEgress$"]).tests)


def test_docker_is_answered_by_a_node_and_by_what_the_control_plane_was_started_with() -> None:
    topology = standard(2, "dual")
    dump = ("kubectl", "cluster-info", "dump", "|", "grep")
    answer = docker_command.known_answer((*dump, "cluster-cidr"), topology)
    assert answer == '"--cluster-cidr=10.244.0.0/16,fd00:10:244::/56"'
    answer = docker_command.known_answer((*dump, "service-cluster-ip-range"), topology)
    assert answer == '"--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112"'
    assert docker_command.known_answer(("kubectl", "get", "cluster-cidr"), topology) == ""
    path = "PATH=/opt/kubernetes:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    words = docker_command.on_node(("ip", "addr"), ("A=b c",), "/root")
    assert words == ["env", "--chdir=/root", path, "HOME=/root", "A=b c", "ip", "addr"]
