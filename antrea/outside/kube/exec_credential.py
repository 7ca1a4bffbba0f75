"""Credentials of a kubeconfig that come from a program: the exec plugins of cloud providers.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.errors import Invalid

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class Credential(msgspec.Struct, frozen=True, rename="camel"):
    """What a plugin answers: a token, or a certificate with its key, in PEM."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: Credential = Credential()


def credential(exec_section: dict[str, Any], cluster: dict[str, Any], config: Path, path: str) -> Credential:
    """Run the plugin of users[].user.exec; it may ask on the terminal. `path` names the section in errors.

    Raises Invalid for a section that cannot be used, a plugin that is missing or fails, and a useless answer.
    """
    version, command = exec_section.get("apiVersion"), exec_section.get("command")
    if version not in VERSIONS or not isinstance(command, str) or not command:
        raise Invalid(path, f"needs a command and an apiVersion of {' or '.join(VERSIONS)}")
    interactive = exec_section.get("interactiveMode", "IfAvailable") != "Never" and sys.stdin.isatty()
    if exec_section.get("interactiveMode") == "Always" and not interactive:
        raise Invalid(path, f"{command} wants to ask on a terminal, and there is none")
    spec: dict[str, Any] = {"interactive": interactive}
    if exec_section.get("provideClusterInfo"):
        spec["cluster"] = {
            key: value for key, value in cluster.items() if not key.startswith("certificate-authority")
        }
        if cluster.get("certificate-authority-data"):
            spec["cluster"]["certificate-authority-data"] = cluster["certificate-authority-data"]
    told = json.dumps({"apiVersion": version, "kind": "ExecCredential", "spec": spec})
    more = {row["name"]: row["value"] for row in exec_section.get("env") or []}
    # a name with a slash is relative to the kubeconfig, as kubectl reads it
    program = str(config.parent / command) if "/" in command else command
    try:
        done = subprocess.run(
            [program, *(exec_section.get("args") or [])],
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, **more, "KUBERNETES_EXEC_INFO": told},
            check=False,
        )
    except OSError as why:
        hint = f"; {exec_section['installHint']}" if exec_section.get("installHint") else ""
        raise Invalid(path, f"{command} cannot be run: {why.strerror}{hint}") from why
    if done.returncode:
        raise Invalid(path, f"{command} failed with exit code {done.returncode}")
    try:
        answer = msgspec.json.decode(done.stdout, type=_Answer)
    except msgspec.MsgspecError as why:
        raise Invalid(path, f"{command} printed no ExecCredential: {why}") from why
    found = answer.status
    if answer.api_version != version or not (found.token or found.client_certificate_data):
        raise Invalid(path, f"{command} gave neither token nor certificate for {version}")
    return found
