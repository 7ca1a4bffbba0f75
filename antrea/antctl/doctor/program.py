"""Programs of the Node that the doctor asks, bounded in time and size."""

from __future__ import annotations

import signal
import subprocess
from threading import Timer
from typing import IO, Final, cast

COMMAND_SECONDS: Final = 10.0
MAX_CHARACTERS: Final = 64 << 20
"""Largest output of a program that is read."""


def output(*command: str, seconds: float = COMMAND_SECONDS, most: int = MAX_CHARACTERS) -> str:
    """Return the output of a command. Raises OSError if it has more than `most` characters, and subprocess.SubprocessError."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        printed, errors = cast("IO[str]", running.stdout), cast("IO[str]", running.stderr)
        timer = Timer(seconds, running.kill)
        timer.start()
        try:
            text = printed.read(most + 1)
            if len(text) > most:
                raise OSError(f"{' '.join(command)} prints more than {most} characters")
            why, code = errors.read(most), running.wait()
        finally:
            timer.cancel()
            running.kill()
    if code == -signal.SIGKILL:
        raise subprocess.TimeoutExpired(command, seconds)
    if code:
        raise subprocess.CalledProcessError(code, command, text, why)
    return text
