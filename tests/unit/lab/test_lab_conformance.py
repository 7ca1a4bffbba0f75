"""What a lab runs of Kubernetes' e2e suite, and what its reports say."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from lab import artifacts, conformance, conformance_balancer, conformance_cluster
from lab.conformance import Outcome, Program, Selection, Skip, Spec
from lab.conformance_page import About, page
from lab.go_build import arguments

if TYPE_CHECKING:
    from lab.topology import Family

DENY = "[sig-network] Netpol NetworkPolicy should support a 'default-deny-ingress' policy [Feature:NetworkPolicy]"
PORTS = "[sig-network] Netpol NetworkPolicy should enforce policy based on Ports [Feature:NetworkPolicy]"
SCTP = "[sig-network] Netpol [Feature:SCTPConnectivity] [LinuxOnly] should support a 'default-deny-ingress' policy"
OTHER = "[sig-network] DNS should provide DNS for services"
CHOSEN = Selection(r"\[sig-network\] Netpol ", (Skip(r"\[Feature:SCTPConnectivity\]", "no | SCTP"),))


def case(name: str, status: str, seconds: float = 0, inner: str = "") -> str:
    text = name.replace("'", "&#39;")
    return f'<testcase name="[It] {text}" status="{status}" time="{seconds}">{inner}</testcase>'


def report(path: Path, *cases: str) -> Path:
    path.mkdir()
    file = path / "junit_01.xml"
    (path / "commit").write_text(f"of {path.name[:5]}")
    before = '<testcase name="[SynchronizedBeforeSuite]" status="passed" time="1"></testcase>'
    file.write_text(f"<testsuites><testsuite>{before}{''.join(cases)}</testsuite></testsuites>")
    return file


FAILURE = "<failure type='failed'>Had 3 wrong results in reachability matrix\nand more</failure>"
ABSENT = (case(SCTP, "skipped"), case(OTHER, "skipped"))


def test_conformance_a_spec_that_failed_and_passed_alone_says_both(tmp_path: Path) -> None:
    first = report(
        tmp_path / "run-001", case(DENY, "passed", 61.6), case(PORTS, "failed", 90, FAILURE), *ABSENT
    )
    second = report(tmp_path / "run-002", case(DENY, "skipped"), case(PORTS, "passed", 45), *ABSENT)
    assert conformance.reports(tmp_path) == [first, second]
    report(tmp_path / "later-003", *ABSENT).parent.rename(tmp_path / "run-003")
    assert conformance.commits(tmp_path, CHOSEN) == ["of run-0"]
    found = conformance.read([first, second], CHOSEN)
    why = "Had 3 wrong results in reachability matrix"
    assert found == [
        Spec(PORTS, (Outcome("failed", 90, why), Outcome("passed", 45))),
        Spec(DENY, (Outcome("passed", 61.6),)),
        Spec(SCTP, (), "no | SCTP"),
    ]
    assert [spec.result for spec in found] == ["passed (before: failed)", "passed", "skipped"]
    assert all(spec.settled for spec in found)


def test_conformance_what_was_interrupted_has_no_result_and_is_not_settled(tmp_path: Path) -> None:
    error = "<error type='interrupted' message='Interrupted by User'></error>"
    file = report(tmp_path / "run-001", case(DENY, "interrupted", 3, error), case(PORTS, "skipped"))
    found = conformance.read([file], CHOSEN)
    assert found == [Spec(PORTS), Spec(DENY)]
    assert [(spec.result, spec.settled) for spec in found] == [("not run", False)] * 2


def test_conformance_what_the_suite_skips_by_itself_has_its_reason(tmp_path: Path) -> None:
    away = '<skipped message="skipped - Requires at least 3 nodes (not 2)"></skipped>'
    first = report(tmp_path / "run-001", case(OTHER, "skipped", 0, away), case(PORTS, "skipped", 0, away))
    second = report(tmp_path / "run-002", case(PORTS, "passed", 45))
    everything = Selection(r"\[sig-network\]")
    assert conformance.read([first, second], everything) == [
        Spec(OTHER, (), "Requires at least 3 nodes (not 2)"),
        Spec(PORTS, (Outcome("passed", 45),)),
    ]


def test_conformance_one_spec_alone_is_found_by_its_whole_name_only() -> None:
    focus = conformance.alone(DENY).focus
    assert re.search(focus, DENY)
    assert not re.search(focus, f"{DENY} [Slow]")
    assert not re.search(focus, PORTS)


def test_conformance_the_committed_list_has_all_network_specs_and_says_why_it_leaves_some_out() -> None:
    chosen = conformance.selection("iptables", "ipv4")
    assert all(skip.why for skip in chosen.skip)
    assert [bool(chosen.why_not(name)) for name in (DENY, PORTS, SCTP, OTHER)] == [False, False, True, False]
    elsewhere = "[sig-node] Pods should be restarted"
    names = (DENY, PORTS, SCTP, OTHER, elsewhere)
    assert [bool(re.search(chosen.focus, name)) for name in names] == [True, True, True, True, False]
    words = conformance.command_line(Program(Path("/a/e2e.test")), chosen, nodes=2, seconds=60)
    assert r"'--ginkgo.focus=\[sig-network\]'" in words
    assert words.startswith("e2e.test --provider=skeleton --num-nodes=2 ")
    assert r"'--ginkgo.skip=\[Feature:SCTPConnectivity\]'" in words


def test_conformance_what_asks_for_kube_proxy_is_left_out_where_there_is_none() -> None:
    urls = "[sig-network] Networking should check kube-proxy urls"
    chosen = [conformance.selection(mode, "ipv4") for mode in ("none", "iptables", "nftables")]
    assert [bool(one.why_not(urls)) for one in chosen] == [True, False, False]


def test_conformance_specs_on_both_families_run_in_labs_that_have_both() -> None:
    name = "[sig-network] [Feature:IPv6DualStack] should create pod, add ipv6 and ipv4 ip to pod ips"
    families: tuple[Family, ...] = ("ipv4", "ipv6", "dual")
    chosen = [conformance.selection("none", family) for family in families]
    assert [bool(one.why_not(name)) for one in chosen] == [True, True, False]


def test_conformance_specs_on_load_balancers_run_where_services_get_addresses() -> None:
    slow = "[sig-network] LoadBalancers [Feature:LoadBalancer] should be able to change the type [Slow]"
    local = (
        "[sig-network] LoadBalancers ExternalTrafficPolicy: Local [Feature:LoadBalancer] [Slow] should work"
    )
    cloud = "[sig-network] LoadBalancers [Feature:LoadBalancer] should handle load balancer cleanup finalizer for service [Slow]"
    other = "[sig-network] DNS configMap nameserver Change stubDomain [Slow]"
    for given in (False, True):
        chosen = conformance.selection("none", "ipv4", load_balancer=given)
        found = [bool(chosen.why_not(name)) for name in (slow, local, cloud, other)]
        assert found == [not given, not given, True, True]


def test_conformance_a_service_of_that_type_waits_until_it_is_annotated_with_the_pool() -> None:
    spec, annotated = {"type": "LoadBalancer"}, {"annotations": {conformance_balancer.ANNOTATION: "other"}}
    assert conformance_balancer.waits({"metadata": {}, "spec": spec})
    assert not conformance_balancer.waits({"metadata": annotated, "spec": spec})
    assert not conformance_balancer.waits({"metadata": {}, "spec": {"type": "NodePort"}})
    assert not conformance_balancer.waits({"metadata": {}, "spec": {**spec, "loadBalancerClass": "a/b"}})
    ranges = [conformance_balancer.pool(family)["spec"]["ipRanges"] for family in ("ipv4", "ipv6", "dual")]
    assert ranges[2] == ranges[0] + ranges[1]


def test_conformance_nodes_are_in_three_zones_in_turn() -> None:
    assert conformance_cluster.zones(["a", "b"]) == {"a": "zone-1", "b": "zone-2"}
    six = conformance_cluster.zones(list("abcdef"))
    assert [list(six.values()).count(zone) for zone in ("zone-1", "zone-2", "zone-3")] == [2, 2, 2]


def test_conformance_the_page_has_a_row_for_each_spec_and_the_reason_of_each_that_is_left_out() -> None:
    specs = [
        Spec(DENY, (Outcome("passed", 61.6),)),
        Spec(PORTS, (Outcome("failed", 90, "Had 3 | wrong results"),)),
        Spec(SCTP, (), "no | SCTP"),
    ]
    text = page(
        specs,
        CHOSEN.skip,
        About("Specs", "`make it`.", (("Commit", "abc"), ("Image", "agnhost")), "e2e.test --x"),
    )
    lines = text.splitlines()
    assert "- Commit: abc" in lines
    assert "- Result: 1 passed, 1 failed, 1 skipped" in lines
    assert "    e2e.test --x" in lines
    assert lines[-3:] == [
        f"| {DENY} | passed | 62 |  |",
        f"| {PORTS} | failed | 90 | Had 3 \\| wrong results |",
        f"| {SCTP} | skipped |  | no \\| SCTP |",
    ]
    assert "| `\\[Feature:SCTPConnectivity\\]` | no \\| SCTP |" in lines


def test_conformance_each_spec_that_ends_is_told_by_its_name_and_everything_is_kept() -> None:
    lines = [
        "SSS\n",
        f"{DENY} [sig-network]\n",
        "  STEP: one\n",
        "• [4.2 seconds]\n",
        f"{PORTS}\n",
        "• [FAILED] [9 seconds]\n",
    ]
    log, said = io.StringIO(), list[str]()
    conformance.follow(lines, log, said.append)
    assert said == [f"• [4.2 seconds] {DENY} [sig-network]", f"• [FAILED] [9 seconds] {PORTS}"]
    assert log.getvalue() == "".join(lines)


def test_conformance_ginkgo_runs_specs_side_by_side_and_each_is_told_by_its_name() -> None:
    program = Program(Path("/a/e2e.test"), Path("/b/ginkgo"), 4)
    assert program.command(["--provider=skeleton", "--ginkgo.focus=X", "--ginkgo.v"]) == [
        "/b/ginkgo",
        "--procs=4",
        "--focus=X",
        "--v",
        "/a/e2e.test",
        "--",
        "--provider=skeleton",
    ]
    lines = [
        "• [4.2 seconds]\n",
        f"{DENY}\n",
        "S [SKIPPED] [0.5 seconds]\n",
        f"{OTHER}\n",
        "• [FAILED] [9 seconds]\n",
        f"{PORTS}\n",
    ]
    said = list[str]()
    conformance.follow(lines, io.StringIO(), said.append)
    assert said == [
        f"• [4.2 seconds] {DENY}",
        f"S [SKIPPED] [0.5 seconds] {OTHER}",
        f"• [FAILED] [9 seconds] {PORTS}",
    ]


def test_conformance_tests_are_compiled_and_programs_are_built(tmp_path: Path) -> None:
    assert arguments(artifacts.E2E, ["e2e.test"], tmp_path)[:3] == ("test", "-c", "-vet=off")
    assert arguments(artifacts.E2E, ["e2e.test"], tmp_path)[-2:] == (
        f"{tmp_path}/",
        "k8s.io/kubernetes/test/e2e",
    )
    assert arguments(artifacts.KUBERNETES, ["kubelet"], tmp_path)[:3] == ("build", "-v", "-trimpath")
