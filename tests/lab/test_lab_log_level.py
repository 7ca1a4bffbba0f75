"""`antctl log-level` in the Pods of agent and controller: shows and sets how much the running program says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from antrea.errors import Unavailable

if TYPE_CHECKING:
    from lab.cluster import Lab

PROGRAMS = {"antrea-agent": "daemonset", "antrea-controller": "deployment"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_log_level_is_shown_and_set_while_the_program_runs(lab: Lab, program: str) -> None:
    lab.api.kubectl(
        "-n", "kube-system", "rollout", "status", f"{PROGRAMS[program]}/{program}", "--timeout=60s"
    )
    pods = lab.api.kubectl("-n", "kube-system", "get", "pods", "-l", f"component={program}", "-o", "name")
    pod = pods.splitlines()[0]

    def antctl(*words: str) -> str:
        command = ("-n", "kube-system", "exec", pod, "-c", program, "--", "antctl", "log-level")
        return lab.api.kubectl(*command, *words)

    before = antctl()
    try:
        assert antctl("4") == ""
        assert antctl() == "4\n"
        assert antctl("-o", "json") == "4\n"
        with pytest.raises(Unavailable, match="Bad Request: log level must be a number from 0 to 10"):
            antctl("11")
        assert antctl() == "4\n"
    finally:
        antctl(before.strip())
    assert antctl() == before
