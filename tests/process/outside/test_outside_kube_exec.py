"""Exec plugins of a kubeconfig: what they are told, what is made of their answer, and what is said when they fail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from antrea.errors import Invalid
from antrea.outside.kube.kubeconfig import kubeconfig

if TYPE_CHECKING:
    from pathlib import Path

V1 = "client.authentication.k8s.io/v1"


def config(path: Path, script: str, **more: Any) -> Path:
    plugin = path / "plugin"
    plugin.write_text(f"#!/bin/sh\n{script}\n")
    plugin.chmod(0o755)
    section = {"apiVersion": V1, "command": "./plugin", "interactiveMode": "IfAvailable", **more}
    tree = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://k:6443"}}],
        "users": [{"name": "u", "user": {"exec": section}}],
    }
    file = path / "config"
    file.write_text(yaml.safe_dump(tree))
    return file


def answer(**status: str) -> str:
    return f"echo '{json.dumps({'apiVersion': V1, 'kind': 'ExecCredential', 'status': status})}'"


def test_a_plugins_token_is_used_and_the_plugin_is_told_what_the_kubeconfig_says(tmp_path: Path) -> None:
    script = f'echo "$1 $PLACE $KUBERNETES_EXEC_INFO" > {tmp_path}/told\n{answer(token="t0")}'
    file = config(
        tmp_path, script, args=["get"], env=[{"name": "PLACE", "value": "here"}], provideClusterInfo=True
    )
    access = kubeconfig(file, plugins=True)
    word, place, info = (tmp_path / "told").read_text().split(" ", 2)

    assert (access.url, access.authorization()) == ("https://k:6443", {"Authorization": "Bearer t0"})
    assert (word, place) == ("get", "here")
    assert json.loads(info) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://k:6443"}},
    }


def test_a_plugins_certificate_is_used(tmp_path: Path) -> None:
    access = kubeconfig(
        config(tmp_path, answer(clientCertificateData="CERT", clientKeyData="KEY")), plugins=True
    )
    assert (access.certificate_pem, access.key_pem) == ("CERT", "KEY")


def test_a_program_that_runs_for_long_refuses_plugins(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="exec: is not supported"):
        kubeconfig(config(tmp_path, answer(token="t")))


@pytest.mark.parametrize(
    ("script", "more", "says"),
    [
        ("exit 3", {}, "./plugin failed with exit code 3"),
        ("echo nonsense", {}, "./plugin printed no ExecCredential"),
        (answer(), {}, "./plugin gave neither token nor certificate"),
        ("", {"apiVersion": "v0"}, "needs a command and an apiVersion of client.authentication.k8s.io/v1 or"),
        (
            "",
            {"command": "antrea-no-such-plugin", "installHint": "install it"},
            "cannot be run: No such file or directory; install it",
        ),
    ],
)
def test_what_is_wrong_with_a_plugin_is_said_in_one_line(
    tmp_path: Path, script: str, more: dict[str, Any], says: str
) -> None:
    with pytest.raises(Invalid) as no:
        kubeconfig(config(tmp_path, script, **more), plugins=True)
    assert says in str(no.value)
    assert str(no.value).startswith(f"{tmp_path}/config: users[].user.exec")
