"""What the conformance suite of network-policy-api is asked, and what its output means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab import artifacts
from lab.conformance import Outcome, Spec
from lab.policy_conformance import arguments, specs
from lab.settings import read

if TYPE_CHECKING:
    from pathlib import Path

OUTPUT = """=== RUN   TestConformanceProfiles
    conformance_profile_test.go:111: Running conformance profile tests
=== RUN   TestConformanceProfiles/Good
=== RUN   TestConformanceProfiles/Good/Should_reach
=== RUN   TestConformanceProfiles/Bad
=== RUN   TestConformanceProfiles/Bad/Should_not_reach
    helper.go:70: Expected connection to be dropped
=== RUN   TestConformanceProfiles/Other
    suite.go:9: Skipping since it is not wanted
--- FAIL: TestConformanceProfiles (9.00s)
    --- PASS: TestConformanceProfiles/Good (2.00s)
        --- PASS: TestConformanceProfiles/Good/Should_reach (1.50s)
    --- FAIL: TestConformanceProfiles/Bad (3.00s)
        --- FAIL: TestConformanceProfiles/Bad/Should_not_reach (2.50s)
    --- SKIP: TestConformanceProfiles/Other (0.00s)
FAIL
"""


def test_each_test_without_others_below_it_is_a_row(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text(OUTPUT)
    assert specs(log) == [
        Spec("Good/Should_reach", (Outcome("passed", 1.5),)),
        Spec("Bad/Should_not_reach", (Outcome("failed", 2.5, "Expected connection to be dropped"),)),
        Spec("Other", skipped="Skipping since it is not wanted"),
    ]


def test_all_features_of_the_version_are_asked_for() -> None:
    words = arguments(7)
    assert "-all-features" in words
    assert "-test.timeout=7s" in words
    assert not any(word.startswith(("-exempt", "-test.skip")) for word in words)
    module = (artifacts.POLICY_CONFORMANCE.folder / "go.mod").read_text()
    assert f"sigs.k8s.io/network-policy-api {artifacts.POLICY_API_VERSION}" in module


def test_its_lab_has_the_gate_on() -> None:
    file = artifacts.SOURCES.parent / "policy_conformance.yaml"
    assert read(file, {}).controller == {"featureGates": {"ClusterNetworkPolicy": True}}
