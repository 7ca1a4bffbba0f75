"""Options of the programs that copy images to a registry, and what skopeo is given for them; see skopeo-copy(1)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

TRIES = 3
MISSING = "skopeo is not on this machine: run scripts/bootstrap, or apt-get install skopeo"


def add_registry_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe the connection to a registry."""
    parser.add_argument("--plain", action="store_true", help="a registry without TLS")
    parser.add_argument("--authfile", type=Path, help="credentials, in the format of ~/.docker/config.json")
    parser.add_argument("--certificates", type=Path, help="directory of ca.crt, client.cert, client.key")


def copy_command(options: argparse.Namespace, *more: str) -> list[str]:
    """Return `skopeo copy` with the options of the registry and `more`; source and destination follow."""
    command = ["skopeo", "copy", *more, "--retry-times", str(TRIES)]
    if options.plain:
        command.append("--dest-tls-verify=false")
    if options.authfile:
        command += ["--authfile", str(options.authfile)]
    if options.certificates:
        command += ["--dest-cert-dir", str(options.certificates)]
    return command


def inspect_command(options: argparse.Namespace, image: str) -> list[str]:
    """Return `skopeo inspect` of the manifest of an image as the registry has it."""
    command = ["skopeo", "inspect", "--raw", "--retry-times", str(TRIES)]
    if options.plain:
        command.append("--tls-verify=false")
    if options.authfile:
        command += ["--authfile", str(options.authfile)]
    if options.certificates:
        command += ["--cert-dir", str(options.certificates)]
    return [*command, image]


def is_installed() -> bool:
    """Return whether skopeo is in PATH."""
    return shutil.which("skopeo") is not None
