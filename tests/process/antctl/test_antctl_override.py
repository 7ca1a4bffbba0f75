"""Options of antctl that replace fields of the kubeconfig, with the meaning that kubectl gives them."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
import yaml
from antctl_api import JsonHandler, run_antctl, serving

from antrea.antctl import mode
from antrea.antctl.failure import Failure
from antrea.antctl.remote import cluster
from antrea.outside.kube.access import Access
from antrea.outside.kube.override import Override

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CA = "-----BEGIN CERTIFICATE-----"


@pytest.fixture
def config(tmp_path: Path) -> str:
    """Two contexts, and a user who acts as another one."""
    (tmp_path / "ca").write_text(CA)
    tree = {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "one", "user": "plain"}},
            {"name": "two", "context": {"cluster": "two", "user": "acting"}},
        ],
        "clusters": [
            {"name": "one", "cluster": {"server": "https://one:6443", "certificate-authority": "ca"}},
            {"name": "two", "cluster": {"server": "https://two:6443", "tls-server-name": "name"}},
        ],
        "users": [
            {"name": "plain", "user": {"token": "t1"}},
            {"name": "acting", "user": {"token": "t2", "as": "jane", "as-groups": ["ops", "dev"], "as-uid": "7"}},
            {"name": "plugin", "user": {"exec": {"command": "/nowhere", "apiVersion": "client.authentication.k8s.io/v1"}}},
        ],
    }  # fmt: skip
    (tmp_path / "config").write_text(yaml.safe_dump(tree))
    return str(tmp_path / "config")


JANE = (
    ("Impersonate-User", "jane"),
    ("Impersonate-Uid", "7"),
    ("Impersonate-Group", "ops"),
    ("Impersonate-Group", "dev"),
)


@pytest.mark.parametrize(
    ("override", "access"),
    [
        (Override(), Access("https://one:6443", CA, token="t1")),
        (Override(context="two"), Access("https://two:6443", token="t2", server_name="name", impersonate=JANE)),
        (Override(cluster="two"), Access("https://two:6443", token="t1", server_name="name")),
        (Override(user="acting"), Access("https://one:6443", CA, token="t2", impersonate=JANE)),
        (Override(context="two", server="three:7443"), Access("https://three:7443", token="t2", impersonate=JANE)),
        (Override(user="plugin", token="t3"), Access("https://one:6443", CA, token="t3")),
        (Override(insecure=True), Access("https://one:6443", token="t1", insecure=True)),
        (
            Override(as_user="eve", as_groups=("a", "b")),
            Access("https://one:6443", CA, token="t1", impersonate=(("Impersonate-User", "eve"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))),
        ),
        (
            Override(context="two", as_user="eve"),
            Access("https://two:6443", token="t2", server_name="name", impersonate=(("Impersonate-User", "eve"), *JANE[1:])),
        ),
    ],
)  # fmt: skip
def test_options_replace_fields_of_the_kubeconfig(config: str, override: Override, access: Access) -> None:
    assert cluster(config, override, {}) == access


@pytest.mark.parametrize(
    ("override", "why"),
    [
        (Override(context="three"), "contexts: has no context named 'three'"),
        (Override(cluster="three"), "clusters: has no cluster named 'three'"),
        (Override(user="eve"), "users: has no user named 'eve'"),
        (Override(as_groups=("ops",)), "--as: is missing: --as-uid and --as-group need the name of a user"),
        (Override(as_user="j\n"), "--as: Impersonate-User has a character that is not printable ASCII"),
        (Override(server="http s"), "is not a host, host:port or URL"),
    ],
)
def test_options_that_fit_nothing_are_refused(config: str, override: Override, why: str) -> None:
    with pytest.raises(Failure, match=why):
        cluster(config, override, {})


def test_the_address_of_a_server_needs_no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cluster(None, Override(server="one:6443", token="t"), {}) == Access("https://one:6443", token="t")
    with pytest.raises(Failure, match="KUBECONFIG names another kubeconfig"):
        cluster(None, Override(token="t"), {})


class Pods(JsonHandler, BaseHTTPRequestHandler):
    """Keeps the headers of the last request."""

    last: dict[str, str]

    def do_GET(self) -> None:
        type(self).last = {key.lower(): value for key, value in self.headers.items()}
        self.answer(403, {"kind": "Status", "message": "no"})

    def do_POST(self) -> None:
        self.do_GET()


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Pods)) as server:
        yield server


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("get", ("controllerinfo",)),
        ("get", ("featuregates",)),
        ("check", ("cluster",)),
        ("packetcapture", ("-S", "a")),
        ("traceflow", ("-S", "a", "-D", "b")),
        ("status", ()),
        ("doctor", ()),
    ],
)
def test_every_command_sends_who_acts_as_whom(
    server: ThreadingHTTPServer, tmp_path: Path, command: str, words: tuple[str, ...]
) -> None:
    Pods.last = {}
    options = ("--token", "secret", "--as", "jane", "--as-uid=7", "--as-group=ops", "--request-timeout", "5")
    run_antctl(mode.REMOTE, server, tmp_path, command, *words, *options)
    sent = {
        key: Pods.last.get(key)
        for key in ("authorization", "impersonate-user", "impersonate-uid", "impersonate-group")
    }
    assert sent == {
        "authorization": "Bearer secret",
        "impersonate-user": "jane",
        "impersonate-uid": "7",
        "impersonate-group": "ops",
    }


def test_the_limit_of_requests_is_a_duration_or_seconds(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    done = run_antctl(mode.REMOTE, server, tmp_path, "get", "controllerinfo", "--request-timeout", "soon")
    assert done.stderr.startswith('Error: invalid argument "soon" for "--request-timeout" flag: ')
    for limit in ("0", "3", "3s", "1m"):
        done = run_antctl(mode.REMOTE, server, tmp_path, "get", "controllerinfo", "--request-timeout", limit)
        assert done.stderr == "Error: request to server failed: no\n"
