"""Runs nft commands in this process through libnftables, or through the program nft where the library is missing.

One `run` is one netlink transaction: all of its commands take effect or none does. Source: libnftables(3).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import subprocess
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

NETFILTER = 12
"""NETLINK_NETFILTER"""
_STATELESS = 1 << 2
_ERROR = re.compile(r"^/\S+:(\d+):\d+-\d+: Error: (?:Could not process rule: )?(.*)$", re.MULTILINE)


class NftError(Exception):
    """nft rejected commands. `lines` has its message per line (from 0); it is empty if the failure is of no line."""

    def __init__(self, output: str, lines: Mapping[int, str] = MappingProxyType({})) -> None:
        """With `lines`, where the output does not have them."""
        super().__init__(output.strip())
        self.lines = lines or {int(number) - 1: message for number, message in _ERROR.findall(output)}


class Nft(Protocol):
    """A way to run commands in the network namespace that it was made in."""

    in_process: bool
    """Whether changes are made by sockets of this process."""

    def run(self, commands: str) -> str:
        """The output of the commands. Raises NftError."""


class Library:
    """libnftables: 1 ms for a small change, where starting a program takes 4."""

    in_process = True

    def __init__(self, *, stateless: bool = True) -> None:
        """Without counters if `stateless`. Raises OSError if the library is not installed."""
        self._lib = ctypes.CDLL("libnftables.so.1")
        self._lib.nft_ctx_new.restype = ctypes.c_void_p
        for function in ("nft_ctx_get_output_buffer", "nft_ctx_get_error_buffer"):
            getattr(self._lib, function).restype = ctypes.c_char_p
        self._context = ctypes.c_void_p(self._lib.nft_ctx_new(0))
        self._lib.nft_ctx_buffer_output(self._context)
        self._lib.nft_ctx_buffer_error(self._context)
        self._lib.nft_ctx_output_set_flags(self._context, _STATELESS if stateless else 0)

    def run(self, commands: str) -> str:
        """Run commands from a file in memory, because for a buffer the library does not report the lines of errors (1.0.6)."""
        with os.fdopen(os.memfd_create("nft"), "w") as file:
            file.write(commands)
            file.flush()
            failed = self._lib.nft_run_cmd_from_filename(
                self._context, f"/proc/self/fd/{file.fileno()}".encode()
            )
        output: bytes = self._lib.nft_ctx_get_output_buffer(self._context)
        error: bytes = self._lib.nft_ctx_get_error_buffer(self._context)
        if failed:
            raise NftError(error.decode(errors="replace"))
        return output.decode(errors="replace")

    def __del__(self) -> None:
        if context := getattr(self, "_context", None):
            self._lib.nft_ctx_free(context)


class Program:
    """The program nft; works in the namespace of the thread that calls."""

    in_process = False

    def __init__(self, *, stateless: bool = True) -> None:
        self._words = ["nft", *(["-s"] if stateless else []), "-f", "-"]

    def run(self, commands: str) -> str:
        done = subprocess.run(self._words, input=commands, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NftError(done.stderr)
        return done.stdout


def own_ports() -> set[int]:
    """The numbers of this process's netlink sockets to netfilter, which news of their changes carry."""
    ports = set()
    for place in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(place.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(place.name))) as own_socket:
                    if (own_socket.family, own_socket.proto) == (socket.AF_NETLINK, NETFILTER):
                        ports.add(own_socket.getsockname()[0])
    return ports


def connect(*, stateless: bool = True) -> Nft:
    """The library if it is there; counters are listed unless `stateless`."""
    try:
        return Library(stateless=stateless)
    except OSError:
        return Program(stateless=stateless)
