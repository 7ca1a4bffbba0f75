"""Root causes come first, and what follows from them is left out."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
from pathlib import Path

from antrea.antctl.doctor.cause import ORDER, RANKS, split
from antrea.antctl.doctor.checks import CHECKS, findings
from antrea.antctl.doctor.command import OF_CLUSTER, as_row
from antrea.antctl.doctor.progress import Progress
from antrea.antctl.doctor.state import CniFile, Finding, NodeState
from antrea.antctl.doctor.text import blocks, limited, total

BESIDE = {
    "agent",
    "controller-port",
    "node-network",
    "agent-health",
    "configuration",
    "controller-health",
    "agent-account",
    "controller-account",
}
"""Findings that no check is named after."""


def error(node: str, check: str, peer: str = "", severity: str = "error") -> Finding:
    return Finding(node, severity, check, "x", "y", peer)


def shown(*rows: Finding) -> list[tuple[str, str]]:
    return [(row.node, row.check) for row in split(rows)[0]]


def test_no_two_checks_share_a_name() -> None:
    names = [*CHECKS, *OF_CLUSTER]
    assert sorted(names) == sorted(set(names))


def test_the_order_names_checks_that_exist_and_explains_only_later_ones() -> None:
    names = {*CHECKS, *OF_CLUSTER, *BESIDE}
    for cause in ORDER:
        consequences = {*cause.on_node, *cause.in_cluster}
        assert {cause.check, *consequences} <= names, cause.check
        assert all(RANKS.get(check, len(ORDER)) > RANKS[cause.check] for check in consequences), cause.check


def test_a_node_without_an_agent_explains_what_others_do_not_get_from_it() -> None:
    rows = [
        error("n1", "gossip-port", "n2"),
        error("n1", "tunnels", "n2"),
        error("n1", "tunnels", "n3"),
        error("n2", "heartbeats"),
        error("n2", "agents"),
    ]
    assert shown(*rows) == [("n2", "agents"), ("n1", "tunnels")]
    assert len(split(rows)[1]) == 3


def test_a_controller_that_is_away_explains_apis_and_connections_of_all_nodes() -> None:
    rows = [
        error("n1", "controller-connection"),
        error("", "api-services"),
        error("", "controller"),
        error("n2", "mtu"),
    ]
    assert shown(*rows) == [("", "controller"), ("n2", "mtu")]


def test_what_follows_from_a_consequence_follows_from_its_cause() -> None:
    rows = [error("n1", "nodes"), error("n1", "controller"), error("n2", "controller-connection")]
    assert shown(*rows) == [("n1", "nodes")]


def test_a_warning_explains_nothing_and_comes_after_errors() -> None:
    rows = [error("", "controller", severity="warning"), error("n1", "controller-connection")]
    assert shown(*rows) == [("n1", "controller-connection"), ("", "controller")]


def test_checks_without_an_answer_follow_from_a_slow_api_server() -> None:
    late = Finding("", "error", "webhooks", "cannot be checked: request to server failed: timed out", "")
    of_node = Finding("n1", "error", "cni-configs", "cannot be checked: PermissionError", "")
    assert shown(error("", "kube-apiserver"), late, late._replace(node="n1"), of_node) == [
        ("", "kube-apiserver"), ("n1", "cni-configs"),
    ]  # fmt: skip
    assert shown(late, of_node) == [("n1", "cni-configs"), ("", "webhooks")]


def test_what_a_hung_agent_cannot_be_asked_follows_from_it_and_explains_nothing() -> None:
    unanswered = Finding("n2", "error", "ovsdb", "cannot be checked: timed out", "")
    assert shown(unanswered, unanswered._replace(check="bgp-peers"), error("n2", "agent")) == [
        ("n2", "agent")
    ]
    assert shown(unanswered, error("n2", "tunnels"), error("n1", "agent")) == [
        ("n1", "agent"), ("n2", "tunnels"), ("n2", "ovsdb"),
    ]  # fmt: skip


def test_a_condition_that_an_agent_and_its_report_name_is_shown_once() -> None:
    rows = [
        error("n1", "switch"),
        Finding("n1", "error", "switch", "other words", "y"),
        error("n2", "switch"),
    ]
    assert shown(*rows) == [("n1", "switch"), ("n2", "switch")]


def test_json_has_the_peer_where_there_is_one_and_text_counts_what_it_leaves_out() -> None:
    assert "peer" not in as_row(error("n1", "mtu"))
    assert as_row(error("n1", "tunnels", "n2"))["peer"] == "n2"
    rows = [error(f"n{number}", "mtu") for number in range(25)]
    assert [row.finding for row in limited(rows)][-2:] == ["x", "5 more; -o json has all"]


def test_text_has_the_repair_below_the_finding_and_the_node_whose_shell_it_is_for() -> None:
    rows = [
        error("", "controller"),
        Finding("n1", "error", "gossip-port", "port 10351 does not answer", "iptables -I '\\'", "n2"),
        Finding("n1", "warning", "path-mtu", "a\x1b[31mswitch", "kubectl edit", "n2"),
        Finding("n1", "warning", "time-skew", "an hour", ""),
    ]
    assert blocks(rows).splitlines() == [
        "error: controller",
        "  x",
        "  Repair: y",
        "",
        "error: gossip-port on Node n1",
        "  port 10351 does not answer",
        "  Repair, in a root shell of Node n2: iptables -I '\\'",
        "",
        "warning: path-mtu on Node n1",
        "  a\\x1b[31mswitch",
        "  Repair: kubectl edit",
        "",
        "warning: time-skew on Node n1",
        "  an hour",
    ]
    assert total(rows) == "2 errors and 2 warnings"
    assert total(rows[:1]) == "1 error"


def test_progress_is_silent_at_first_and_then_names_what_is_waited_for() -> None:
    class Out(io.StringIO):
        written = threading.Event()

        def flush(self) -> None:
            self.written.set()

    out = Out()
    with Progress(out, quiet_seconds=60):
        pass
    assert out.getvalue() == ""
    with Progress(out, quiet_seconds=0.01) as progress:
        for name in ("kube-apiserver", "n1", "n2", "n3", "n4"):
            progress.begin(name)
        progress.done("kube-apiserver")
        assert progress.text() == "1 of 5 answers; waiting for n1, n2, n3 and 1 more"
        assert Out.written.wait(30)
    assert "answers" in out.getvalue()


def test_the_page_on_troubleshooting_leaves_repairs_to_the_doctor() -> None:
    """Two answers to one fault: one of them may do damage."""
    names = {*CHECKS, *OF_CLUSTER, *BESIDE}
    page = (Path(__file__).parents[3] / "docs/troubleshooting.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("|") and "check `" in line]
    named = [row for row in rows if names & set(re.findall(r"check `([\w-]+)`", row))]
    allowed = ("run the command in the finding", "correct what the message of the Event names")
    assert len(named) > 8
    assert [row for row in named if not row.split("|")[-2].strip().startswith(allowed)] == []


def test_a_right_that_is_missing_is_named_before_the_checks_that_need_it() -> None:
    why = 'request to server failed: nodes is forbidden: User "antrea-agent" cannot list resource "nodes"'
    unseen = {"peers": why, "pod_peers": why}
    node = NodeState(
        "n1", cni_files=(CniFile("10-antrea.conflist"),), peers=None, pod_peers=None, unseen=unseen
    )
    (row,) = split(findings(node))[0]
    assert (row.check, row.finding) == ("rights", f"a right of the agent is missing: {why}")
    assert row.repair.startswith("kubectl auth reconcile -f antrea.yml")


def test_the_doctor_of_an_agent_starts_without_the_libraries_of_a_workstation() -> None:
    """Agents of all Nodes start it for each `antctl doctor`, and imports are most of what that costs."""
    words = "import sys, antrea.antctl.doctor.command, antrea.antctl.doctor.gather; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert {"aiohttp", "cryptography", "antrea.engine.engine"} & {*done.stdout.split()} == set()
