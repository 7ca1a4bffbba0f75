"""Credentials of a kubeconfig that come from a program: the exec plugins of cloud providers.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from antrea.config.load import read
from antrea.decoding import decode_json, decode_tree
from antrea.errors import Invalid

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER_EXTENSION = "client.authentication.k8s.io/exec"
VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class Credential(msgspec.Struct, frozen=True, rename="camel"):
    """Credential from a plugin: a token, or a certificate with its key, in PEM."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: Credential = Credential()


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str


class _Exec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The section users[].user.exec."""

    command: str
    api_version: Literal["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"]
    args: tuple[str, ...] | None = None
    env: tuple[_Variable, ...] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: Literal["Never", "IfAvailable", "Always"] = "IfAvailable"


def credential(
    exec_section: dict[str, Any], cluster: dict[str, Any], cluster_folder: Path, config: Path, path: str
) -> Credential:
    """Run the plugin of users[].user.exec; it may ask on the terminal. `path` names the section in errors.

    `cluster` is the section of a kubeconfig in `cluster_folder`, `config` the file that names the plugin.
    Raises Invalid for a section that cannot be used, a plugin that is missing or fails, and a useless answer.
    """
    try:
        plugin = decode_tree(exec_section, _Exec, path)
    except Invalid as error:
        wanted = f"needs a command and an apiVersion of {' or '.join(VERSIONS)}"
        raise Invalid(path, f"{wanted}: {error.why}") from error
    command, version = plugin.command, plugin.api_version
    interactive = plugin.interactive_mode != "Never" and sys.stdin.isatty()
    if plugin.interactive_mode == "Always" and not interactive:
        raise Invalid(path, f"{command} wants to ask on a terminal, and there is none")
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        spec["cluster"] = _cluster_info(cluster, cluster_folder)
    exec_info = json.dumps({"apiVersion": version, "kind": "ExecCredential", "spec": spec})
    more = {row.name: row.value for row in plugin.env or ()}
    # a name with a slash is relative to the kubeconfig, as kubectl reads it
    program = str(config.parent / command) if "/" in command else command
    try:
        done = subprocess.run(
            [program, *(plugin.args or ())],
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, **more, "KUBERNETES_EXEC_INFO": exec_info},
            check=False,
        )
    except OSError as error:
        hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
        raise Invalid(path, f"{command} cannot be run: {error.strerror}{hint}") from error
    if done.returncode:
        raise Invalid(path, f"{command} failed with exit code {done.returncode}")
    try:
        answer = decode_json(done.stdout, _Answer, path)
    except Invalid as error:
        raise Invalid(path, f"{command} printed no ExecCredential: {error.why}") from error
    status = answer.status
    if answer.api_version != version or not (status.token or status.client_certificate_data):
        raise Invalid(path, f"{command} gave neither token nor certificate for {version}")
    return status


def _cluster_info(cluster: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the field `cluster` of an ExecCredential: the CA as data, and the kubeconfig's configuration for plugins."""
    extension_path = ("extensions", "certificate-authority")
    info = {key: value for key, value in cluster.items() if key not in extension_path and value is not None}
    if cluster.get("certificate-authority") and "certificate-authority-data" not in info:
        authority = read(folder / cluster["certificate-authority"])
        info["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
    for row in cluster.get("extensions") or ():
        if isinstance(row, dict) and row.get("name") == CLUSTER_EXTENSION:
            info["config"] = row.get("extension")
    return info
