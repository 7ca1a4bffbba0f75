"""A certificate authority with a serving certificate of it, and when a certificate begins and ends.

A program of its own, antrea.outside.tls.authority_program, does both, so that no server keeps cryptography's 13 MiB in
memory.
"""

from __future__ import annotations

import subprocess
import sys

from antrea.errors import Unavailable
from antrea.outside.tls.server_context import Certificate

KEY_STARTS = "-----BEGIN PRIVATE KEY-----"


def make(names: tuple[str, ...], addresses: tuple[str, ...], days: int = 365) -> Certificate:
    """A serving certificate with its authority behind it; the first name is its subject. Raises Unavailable."""
    text = _run("make", ",".join(names), ",".join(addresses), str(days))
    chain, mark, key = text.partition(KEY_STARTS)
    return Certificate(chain, mark + key)


def term(certificate_pem: str) -> tuple[float, float]:
    """When the first certificate of `certificate_pem` begins and ends, in Unix seconds. Raises Unavailable if it is none."""
    begin, end = _run("term", stdin=certificate_pem).split()
    return float(begin), float(end)


def ends(certificate_pem: str) -> float:
    """When it ends."""
    return term(certificate_pem)[1]


def _run(*words: str, stdin: str = "") -> str:
    command = [sys.executable, "-m", "antrea.outside.tls.authority_program", *words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout:
        raise Unavailable(f"certificate: {done.stderr.strip()[-200:]}")
    return done.stdout
