"""A program loads the modules of features that it runs: the agent none of the controller's, and the other way round."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import {module}
print("\\n".join(name for name in sys.modules if name.startswith("antrea.features.")))
"""

PARTS = """
import sys
from antrea.agent.feature_set import folders_on
from antrea.agent.program import _accept
from antrea.config.agent import AgentConfig
from antrea.features.framework.plug import module_of
for folder in folders_on(_accept(AgentConfig()).names):
    module_of(folder, "agent_part")
print(*sorted({"antrea.outside.gossip.crypto", "cryptography", "cffi"} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("module", "loaded", "never"),
    [
        (
            "antrea.agent.program",
            "agent",
            {"antctl_part", "controller", "controller_part", "admission", "conversion", "disabled"},
        ),
        (
            "antrea.controller.main",
            "controller",
            {"agent", "agent_part", "antctl_part", "admission", "conversion"},
        ),
        (
            "antrea.controller.apiserver.server",
            "admission",
            {"agent", "agent_part", "antctl_part", "controller_part", "disabled"},
        ),
    ],
)
def test_a_program_loads_only_its_side_of_the_features(module: str, loaded: str, never: set[str]) -> None:
    words = [sys.executable, "-c", PROGRAM.format(module=module)]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    # antrea.features.FEATURE.SIDE
    sides = {name.split(".")[3] for name in out.split() if name.count(".") > 2 and "framework" not in name}
    assert loaded in sides
    assert not never & sides


def test_an_agent_with_the_default_features_loads_no_second_openssl() -> None:
    out = subprocess.run([sys.executable, "-c", PARTS], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["antrea.outside.gossip.crypto"]
