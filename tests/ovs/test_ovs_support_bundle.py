"""What Open vSwitch says of itself in a support bundle."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from antrea.agent.api.support_bundle import switch

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge


def test_a_bundle_asks_the_switch_by_its_sockets_because_its_pid_is_of_another_container(
    ovs: OvsBridge,
) -> None:
    directory = ovs.process.directory
    # left by a crash
    left = directory / "ovs-vswitchd.1.ctl"
    left.touch()
    os.utime(left, (1, 1))
    answers = {
        command.path: subprocess.run(
            command.arguments,
            env={**os.environ, **command.environment},
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        for command in switch(str(directory), "br-int")
    }
    left.unlink()
    assert {path: done.stderr for path, done in answers.items() if done.returncode} == {}
    assert "Event coverage" in answers["ovs-coverage"].stdout
    assert "LOCAL(br-int)" in answers["ovsports"].stdout
