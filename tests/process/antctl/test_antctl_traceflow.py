"""`antctl traceflow` against an API server on loopback: the object that it makes, what it prints and how it ends."""

from __future__ import annotations

import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from antctl_api import JsonHandler, run_antctl, serving

from antrea.antctl import mode
from antrea.features.traceflow.antctl_part import command as traceflow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class Api(ThreadingHTTPServer):
    """Has Pods and Services, and ends each Traceflow with the one status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects = {"/api/v1/namespaces/default/pods/web", "/api/v1/namespaces/default/services/web"}
        self.created: list[dict[str, Any]] = []
        self.status: dict[str, Any] = {"phase": "Succeeded"}


class Handler(JsonHandler, BaseHTTPRequestHandler):
    server: Api

    def do_POST(self) -> None:
        self.server.created.append(self.body())
        self.answer(201, self.server.created[-1])

    def do_GET(self) -> None:
        if self.path.startswith(traceflow.PATH):
            self.answer(200, {**self.server.created[-1], "status": self.server.status})
        else:
            self.answer(200 if self.path in self.server.objects else 404, {})

    def do_DELETE(self) -> None:
        self.answer(200, {})


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(traceflow, "POLL", 0.0)
    with serving(Api()) as server:
        yield server


def run(api: Api, folder: Path, *words: str) -> Result:
    return run_antctl(mode.CONTROLLER, api, folder, "traceflow", *words)


def test_traceflow_that_failed_is_printed_and_is_a_failure(api: Api, tmp_path: Path) -> None:
    api.status = {"phase": "Failed", "reason": "Traceflow timeout"}
    result = run(api, tmp_path, "-S", "web", "-D", "10.0.0.1")
    assert (result.exit_code, result.stderr) == (1, "Error: Traceflow failed: Traceflow timeout\n")
    assert "phase: Failed\n" in result.stdout
    api.status = {"phase": "Succeeded"}
    assert run(api, tmp_path, "-S", "web", "-D", "10.0.0.1").exit_code == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-D", "web"), "Please provide source"),
        (("-S", "web"), "Please provide destination"),
        (("-S", "web", "-D", "web", "-t", "13h"), "Timeout cannot be longer than 12 hours"),
        (("-S", "web", "-D", "web", "--dropped-only"), "--dropped-only works only with live-traffic"),
        (("-S", "web", "-D", "web", "--destination-kind", "node"), "'node' is neither pod nor service"),
    ],
)
def test_traceflow_with_options_that_cannot_be_is_a_failure(
    api: Api, tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    result = run(api, tmp_path, *words)
    assert (result.exit_code, why in result.stderr, api.created) == (1, True, [])


def test_traceflow_of_pods_with_long_names_has_a_name_that_is_valid(api: Api, tmp_path: Path) -> None:
    ends = [f"{'n' * 63}/{'p' * 62}.{'q' * 62}.{'r' * 62}.{'s' * 60}{last}" for last in "ab"]
    for end in ends:
        for more in ((), ("--nowait",)):
            assert (
                run(api, tmp_path, "-S", end, "-D", ends[0], "--destination-kind=pod", *more).exit_code == 0
            )
    names = [made["metadata"]["name"] for made in api.created]
    assert [(len(name) <= 253, bool(SUBDOMAIN.fullmatch(name))) for name in names] == [(True, True)] * 4
    assert len(set(names)) == 4


@pytest.mark.parametrize(
    ("words", "destination", "said"),
    [
        ((), {"namespace": "default", "pod": "web"}, "--destination-kind=service"),
        (("--destination-kind=pod",), {"namespace": "default", "pod": "web"}, ""),
        (("--destination-kind", "service"), {"namespace": "default", "service": "web"}, ""),
    ],
)
def test_traceflow_to_a_name_of_a_pod_and_a_service_says_which_it_takes(
    api: Api, tmp_path: Path, words: tuple[str, ...], destination: dict[str, str], said: str
) -> None:
    result = run(api, tmp_path, "-S", "web", "-D", "web", *words)
    assert result.exit_code == 0
    assert api.created[0]["spec"]["destination"] == destination
    assert (said in result.stderr) if said else result.stderr == ""


def test_traceflow_to_a_name_of_one_kind_says_nothing(api: Api, tmp_path: Path) -> None:
    for kind in ("pod", "service"):
        api.objects = {f"/api/v1/namespaces/default/{kind}s/web"}
        result = run(api, tmp_path, "-S", "other", "-D", "web")
        assert (result.exit_code, result.stderr) == (0, "")
        assert api.created[-1]["spec"]["destination"] == {"namespace": "default", kind: "web"}
