"""Names of programs in requests to kube-apiserver."""

from __future__ import annotations

import re

import pytest

from antrea import VERSION
from antrea.outside.kube.user_agent import user_agent


@pytest.mark.parametrize(
    ("started_as", "name"),
    [
        ("/usr/local/bin/antrea-agent", "antrea-agent"),
        ("/usr/local/bin/antrea-controller", "antrea-controller"),
        ("/usr/lib/python3/dist-packages/antrea/controller/apiserver/server.py", "antrea-controller"),
        ("/src/antrea/antrea/flow_aggregator/main.py", "antrea-flow-aggregator"),
        ("/home/agent/antrea/outside/upload/program.py", "antrea"),
        ("kubectl-antrea", "kubectl-antrea"),
        ("antctl", "antctl"),
        ("/usr/bin/\r\nX-Other: 1", "antrea"),
        ("-c", "antrea"),
        ("antrea", "antrea"),
    ],
)
def test_the_user_agent_has_program_version_and_platform(started_as: str, name: str) -> None:
    assert re.fullmatch(rf"{name}/v{re.escape(VERSION)} \(linux/[a-z0-9]+\)", user_agent(started_as))
