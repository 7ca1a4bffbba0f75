"""A support bundle on a disk that is full."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from antrea.outside.support_bundle.plan import Command, Limits, Made, Order

if TYPE_CHECKING:
    from pathlib import Path


def collected(folder: Path, order: Order) -> tuple[Made, list[str]]:
    """The outcome of a bundle on a disk of 1 MiB, and what is left there."""
    script = 'mount -t tmpfs -o size=1m disk "$1" && "$2" -m antrea.outside.support_bundle.program && ls -A "$1" >&2'
    words = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        script,
        "sh",
        str(folder),
        sys.executable,
    ]
    done = subprocess.run(
        words, input=msgspec.json.encode(order), capture_output=True, check=True, timeout=60
    )
    return msgspec.json.decode(done.stdout, type=Made), done.stderr.decode().split()


@pytest.mark.wide
def test_a_bundle_on_a_full_disk_is_one_clear_line_and_leaves_nothing(tmp_path: Path) -> None:
    limits, target = Limits(free_bytes=0), str(tmp_path / "bundle_1.tar.gz")
    noise = Command("noise", ("head", "-c", "3000000", "/dev/urandom"))
    made, left = collected(tmp_path, Order(target, commands=(noise,), limits=limits))
    assert (made, left) == (Made(why=f"No space left on device: {tmp_path}"), [])
    large = Order(target, {"large": [{"number": number} for number in range(100_000)]}, limits=limits)
    assert collected(tmp_path, large)[0].why == f"No space left on device: {tmp_path}"
    made, left = collected(tmp_path, Order(target, {"small": "x"}, limits=limits))
    assert (made.why, left) == ("", ["bundle_1.tar.gz"])
    assert json.loads(msgspec.json.encode(made))["size"] > 0
