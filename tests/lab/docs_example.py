"""Examples of pages of the documentation, run as they are printed: by kubectl and antctl of a workstation."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import workstation

if TYPE_CHECKING:
    from lab.cluster import Lab

DOCS = Path(__file__).parents[2] / "docs"
_FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^    .*\n(?:\n(?=    ))?)+", re.MULTILINE)


def block(page: str, part: str) -> str:
    """The one block of code of a page that has this text."""
    text = (DOCS / page).read_text()
    fenced = _FENCED.findall(text)
    indented = [textwrap.dedent(found) for found in _INDENTED.findall(_FENCED.sub("", text))]
    (found,) = [one for one in (*fenced, *indented) if part in one]
    return str(found)


def commands(text: str) -> str:
    """Shell lines of a block: what follows a prompt, and lines that begin a command, with their here documents."""
    found, end = [], ""
    for line in text.splitlines():
        word = line.removeprefix("$ ")
        if end or line.startswith("$ ") or word.split(" ")[0] in ("kubectl", "antctl", "set"):
            found.append(word)
            begun = re.search(r"<<'?(\w+)'?$", word)
            end = begun[1] if begun else "" if word.strip() == end else end
    return "\n".join(found)


class Workstation:
    """A shell in which `kubectl` and `antctl` are those of the lab's administrator."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        for name, words in (("kubectl", lab.api.command(())), ("antctl", workstation.command(lab))):
            program = folder / name
            program.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
            program.chmod(0o755)
        self._path = f"{folder}:{os.environ['PATH']}"

    def run(self, script: str, seconds: float = 240) -> str:
        """What it prints; its first command that fails ends it, and the test."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            capture_output=True, text=True, check=False, timeout=seconds,
            env={**workstation.environment(), "PATH": self._path},
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout
