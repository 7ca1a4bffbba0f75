"""Which commit a lab was made of."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def commit() -> str:
    """This checkout's commit, and whether its files differ from that; empty for an installed package."""
    if not (ROOT / ".git").exists():
        return ""
    head, changed = (
        _git("rev-parse", "HEAD"),
        _git("status", "--porcelain", "-uno", "--", "antrea", "build", "cni", "lab"),
    )
    return f"{head} with changes" if changed else head


def _git(*argv: str) -> str:
    done = subprocess.run(["git", *argv], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
