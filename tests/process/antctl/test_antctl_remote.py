"""antctl on a workstation: which cluster it asks, and what it says when it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from antctl_api import JsonHandler, run_antctl, serving
from click.testing import CliRunner

from antrea.antctl import mode
from antrea.antctl.failure import Failure
from antrea.antctl.main import antctl
from antrea.antctl.remote import CONTROLLER_INFO, DAEMON_SETS, antrea_namespace, cluster, node_address
from antrea.antctl.request import Server
from antrea.outside.kube.access import Access
from antrea.outside.kube.override import Override

if TYPE_CHECKING:
    from pathlib import Path

KUBECONFIG = """
apiVersion: v1
current-context: lab
contexts: [{{name: lab, context: {{cluster: lab, user: admin}}}}]
clusters: [{{name: lab, cluster: {{server: "{server}"}}}}]
users: [{{name: admin, user: {{token: secret}}}}]
"""


def written(path: Path, server: str) -> Path:
    path.write_text(KUBECONFIG.format(server=server))
    return path


def test_antctl_prefers_the_flag_then_the_environment_then_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".kube").mkdir()
    written(tmp_path / ".kube/config", "https://home:6443")
    flag = written(tmp_path / "flag", "https://flag:6443")
    first = written(tmp_path / "first", "https://first:6443")
    monkeypatch.setenv("HOME", str(tmp_path))
    environ = {"KUBECONFIG": f"{first}{os.pathsep}/nowhere"}

    assert cluster(None, Override(), {}).url == "https://home:6443"
    assert cluster(None, Override(), environ).url == "https://first:6443"
    assert cluster(str(flag), Override(), environ).url == "https://flag:6443"
    assert cluster(str(flag), Override(server="other:444"), environ).url == "https://other:444"


def test_antctl_names_the_kubeconfig_that_it_cannot_read(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        antctl(mode.REMOTE), ["-k", str(tmp_path / "none"), "get", "featuregates"], prog_name="antctl"
    )
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {tmp_path}/none: cannot be read: No such file or directory\n",
    )


def test_antctl_says_how_another_kubeconfig_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Failure) as failure:
        cluster(None, Override(), {})
    assert str(failure.value) == (
        f"{tmp_path}/.kube/config: cannot be read: No such file or directory"
        " (-k or KUBECONFIG names another kubeconfig)"
    )


def test_antctl_takes_the_external_address_of_a_node_first_and_ipv4_before_ipv6() -> None:
    def node(*addresses: tuple[str, str]) -> dict[str, object]:
        rows = [{"type": kind, "address": address} for kind, address in addresses]
        return {"metadata": {"name": "n1"}, "status": {"addresses": rows}}

    inner = (("InternalIP", "fd00::1"), ("InternalIP", "10.0.0.1"), ("Hostname", "n1"))
    assert node_address(node(*inner)) == "10.0.0.1"
    assert node_address(node(*inner, ("ExternalIP", "2001:db8::1"))) == "2001:db8::1"
    with pytest.raises(Failure, match="Node n1 has neither ExternalIP nor InternalIP"):
        node_address(node(("Hostname", "n1")))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_antctl_completes_its_commands_in_every_shell(shell: str) -> None:
    result = CliRunner().invoke(antctl(mode.AGENT), ["completion", shell], prog_name="antctl")
    assert (result.exit_code, "_ANTCTL_COMPLETE" in result.stdout) == (0, True)


def test_antctl_completes_words_and_refuses_an_unknown_shell() -> None:
    asked = {"_ANTCTL_COMPLETE": "bash_complete", "COMP_WORDS": "antctl get pod", "COMP_CWORD": "2"}
    code = "from antrea.antctl.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **asked, "POD_NAME": "antrea-agent-x"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "plain,podinterface" in done.stdout.split()
    result = CliRunner().invoke(antctl(mode.AGENT), ["completion", "tcsh"], prog_name="antctl")
    assert (result.exit_code, result.stderr) == (1, "Error: 'tcsh' is none of the shells bash, zsh, fish\n")


class Evaluating(JsonHandler, BaseHTTPRequestHandler):
    """Knows the Pods of Namespace shop, and no policy about them; who asks has no right to the Namespace data."""

    def do_POST(self) -> None:
        self.answer(201, self.body())

    def do_GET(self) -> None:
        space = self.path.split("/")[4]
        self.answer({"shop": 200, "data": 403}.get(space, 404), {})


@pytest.mark.parametrize(
    ("source", "destination", "message"),
    [
        ("none/web", "shop/db", "Error: --source: Pod none/web does not exist\n"),
        ("shop/web", "db", "Error: --destination: Pod lone/db does not exist\n"),
        ("shop/web", "data/db", ""),
        ("shop/web", "shop/db", ""),
    ],
)
def test_an_evaluation_names_a_pod_that_does_not_exist(
    tmp_path: Path, source: str, destination: str, message: str
) -> None:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Evaluating)) as server:
        words = ("networkpolicyevaluation", "-S", source, "-D", destination, "-n", "lone")
        result = run_antctl(mode.REMOTE, server, tmp_path, "query", *words)
    assert (result.exit_code, result.stderr) == (int(bool(message)), message)


class InstalledHandler(JsonHandler, BaseHTTPRequestHandler):
    """DaemonSets with the labels of agents in `namespaces`, and the Namespace that the controller has reported; empty: it has not."""

    namespaces: tuple[str, ...] = ()
    reported = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == DAEMON_SETS:
            rows = [{"metadata": {"namespace": name, "name": "ds"}} for name in self.namespaces]
            return self.answer(200, {"items": rows})
        assert path == CONTROLLER_INFO
        if not self.reported:
            return self.answer(403, {"kind": "Status", "message": "forbidden"})
        return self.answer(200, {"podRef": {"namespace": self.reported}})


def installed(namespaces: tuple[str, ...], reported: str) -> str:
    """The Namespace that antctl finds, or what it says instead."""
    handler = type("Handler", (InstalledHandler,), {"namespaces": namespaces, "reported": reported})
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        kubernetes = Server(Access(url=f"http://127.0.0.1:{server.server_address[1]}"), 10.0)
        try:
            return antrea_namespace(kubernetes)
        except Failure as error:
            return error.format_message()


def test_a_strangers_daemon_set_with_the_labels_of_agents_is_not_antreas() -> None:
    assert installed(("net",), "") == "net"
    assert installed(("net", "a-tenant"), "net") == "net"
    assert (
        installed((), "net")
        == "no DaemonSet has the labels app=antrea,component=antrea-agent: is Antrea installed?"
    )
    assert (
        "a-tenant/ds, net/ds; and AntreaControllerInfo antrea-controller does not exist. Start"
        in installed(("net", "a-tenant"), "")
    )
    assert "AntreaControllerInfo antrea-controller names Namespace old. Start" in installed(
        ("net", "a-tenant"), "old"
    )
