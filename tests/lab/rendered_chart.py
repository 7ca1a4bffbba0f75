"""The Helm chart rendered with values."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lab import artifacts

CHART = Path(__file__).parents[2] / "build/charts/antrea"


@cache
def helm() -> Path:
    return artifacts.helm(print)


def template(values: dict[str, Any], *words: str) -> subprocess.CompletedProcess[str]:
    """Render the chart with `values`."""
    command = [str(helm()), "template", "antrea", str(CHART), "--namespace", "kube-system", "--values", "-"]
    return subprocess.run(
        [*command, *words], input=json.dumps(values), capture_output=True, text=True, check=False, timeout=60
    )


def objects(values: dict[str, Any], *words: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Objects of the chart with `values`, by kind and name."""
    done = template(values, *words)
    assert done.returncode == 0, done.stderr
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.stdout) if one}
