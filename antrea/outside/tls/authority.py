"""Certificate authorities, certificates of them, and when a certificate begins and ends.

A program of its own, antrea.outside.tls.authority_program, does all of it, so that no server keeps cryptography's 13 MiB in
memory.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Literal

from antrea.errors import Unavailable
from antrea.outside.tls.server_context import Certificate

KEY_STARTS = "-----BEGIN PRIVATE KEY-----"


def make(names: tuple[str, ...], addresses: tuple[str, ...], days: int = 365) -> Certificate:
    """A serving certificate with its authority behind it; the first name is its subject. Raises Unavailable."""
    return _split(_run("make", ",".join(names), ",".join(addresses), str(days)))


def make_authority(name: str, days: int = 365) -> Certificate:
    """An authority with its key, which `issue` signs with. Raises Unavailable."""
    return _split(_run("authority", name, str(days)))


def issue(
    by: Certificate, name: str, *, usage: Literal["server", "client"], names: tuple[str, ...] = (),
    addresses: tuple[str, ...] = (), days: int = 365,
) -> Certificate:  # fmt: skip
    """A certificate of the authority `by`, for a server of these names and addresses or for a client. Raises Unavailable."""
    arguments = ("issue", name, usage, ",".join(names), ",".join(addresses), str(days))
    return _split(_run(*arguments, stdin=f"{by.certificate_pem}\0{by.key_pem}"))


def is_issued(certificate_pem: str, authority_pem: str) -> bool:
    """Whether this authority signed the first certificate of `certificate_pem`. Raises Unavailable if one is none."""
    return _run("issued", stdin=f"{certificate_pem}\0{authority_pem}") == "yes"


def _split(text: str) -> Certificate:
    certificate, mark, key = text.partition(KEY_STARTS)
    return Certificate(certificate, mark + key)


def term(certificate_pem: str) -> tuple[float, float]:
    """When the first certificate of `certificate_pem` begins and ends, in Unix seconds. Raises Unavailable if it is none."""
    begin, end = _run("term", stdin=certificate_pem).split()
    return float(begin), float(end)


def ends(certificate_pem: str) -> float:
    """When it ends."""
    return term(certificate_pem)[1]


def _run(*arguments: str, stdin: str = "") -> str:
    command = [sys.executable, "-P", "-m", "antrea.outside.tls.authority_program", *arguments]
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    except OSError as error:
        # no memory, no process or no file is to be had
        raise Unavailable(f"certificate: {error}") from error
    if done.returncode or not done.stdout:
        raise Unavailable(f"certificate: {done.stderr.strip()[-200:]}")
    return done.stdout
