"""A file of packets on a disk that has no room: what is there can be read, and what comes next stands behind it."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from antrea.features.packet_capture.agent_part import pcapng, program
from antrea.features.packet_capture.agent_part.plan import CaptureOrder

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_written_after_a_block_that_did_not_fit_leaves_no_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a block was written, which gives room for a shorter one once it is cut off."""
    path = tmp_path / "x.pcapng"
    path.touch()
    file = program.PcapngFile(CaptureOrder(device="lo", path=str(path), program=(), number=1, seconds=1))
    file.append([b"first"])
    write = os.pwrite
    room = [3]

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[: room.pop()], offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(Exception, match="No space left on device"):
            file.append([b"does not fit"])
    file.append([b"last"])
    assert path.read_bytes() == b"firstlast"


def test_a_text_that_no_option_holds_is_cut() -> None:
    """Names of rules are in the reason for which a packet was dropped."""
    block = pcapng.dropped(1, b"packet", 6, "x" * 70_000)
    assert block[-4:] == len(block).to_bytes(4, "little") == block[4:8]
    assert block.count(b"x") == pcapng.MAX_OPTION
