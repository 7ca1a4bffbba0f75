"""The conformance suite of the network-policy-api project against a lab: command line, run and results."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from antrea import VERSION
from lab import artifacts, control_plane, namespace, upstream_e2e
from lab.cluster import COMMIT
from lab.conformance import Spec
from lab.conformance_page import About, counted, page
from lab.conformance_run import rows
from lab.images import POLICY_AGNHOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.cluster import Lab
    from lab.conformance import Outcome

TEST = "^TestConformanceProfiles$"
ABOVE = "TestConformanceProfiles/"
OUTPUT, REPORT = "output.log", "report.yaml"
FEATURES = "all features: standard, named ports, Nodes as peers"


class PolicyConformanceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `antrea-lab policy-conformance`."""

    seconds: int
    page: Path | None
    reports: Path | None


def arguments(seconds: int) -> list[str]:
    """Return the arguments of the suite, except for the file of its report.

    Source: sigs.k8s.io/network-policy-api conformance/utils/flags
    """
    return [
        "-test.v",
        f"-test.timeout={seconds}s",
        f"-test.run={TEST}",
        "-conformance-profiles=ClusterNetworkPolicy",
        "-all-features",
        "-organization=antrea-python",
        "-project=antrea-python",
        "-url=https://github.com/kubernetes-sigs/network-policy-api",
        "-contact=none",
        "-additional-info=make policy-conformance",
        f"-version={VERSION}",
    ]


def specs(log: Path) -> list[Spec]:
    """One for each test of the output that has no others below it."""
    outcomes = upstream_e2e.read(log.read_text(errors="replace").splitlines())
    return [_spec(name.removeprefix(ABOVE), outcome) for name, outcome in outcomes.items()]


def _spec(name: str, outcome: Outcome) -> Spec:
    if outcome.status == upstream_e2e.RESULTS["SKIP"]:
        return Spec(name, skipped=outcome.why)
    return Spec(name, (outcome,))


def against(lab: Lab, wish: PolicyConformanceOptions, say: Callable[[str], None]) -> bool:
    """Run the suite, print its results and write the page; False if a test failed or there was none."""
    program = artifacts.policy_conformance(say)
    place = (wish.reports or lab.record.directory / "logs" / "policy-conformance").absolute()
    place.mkdir(parents=True, exist_ok=True)
    ended = _run(lab, program, wish.seconds, place, say)
    rows = specs(place / OUTPUT)
    for spec in rows:
        if not spec.settled:
            say(f"{spec.result}: {spec.name}: {spec.runs[-1].why}")
    say(f"{counted(rows)}; output: {place}")
    if wish.page:
        commit = (lab.record.directory / COMMIT).read_text()
        wish.page.write_text(page(rows, (), _about(lab, wish, commit)))
    return not ended and all(spec.settled for spec in rows) and any(spec.runs for spec in rows)


def _about(lab: Lab, wish: PolicyConformanceOptions, commit: str) -> About:
    return About(
        f"The conformance suite of network-policy-api ({artifacts.POLICY_API_VERSION}) against the lab",
        "`make policy-conformance`; not edited by hand. What it does:"
        " [admin policies](../admin-network-policy.md#conformance).",
        (
            *rows(lab, [commit]),
            ("Profile", f"ClusterNetworkPolicy, {FEATURES}"),
            ("Image", f"{POLICY_AGNHOST}, made by the lab"),
        ),
        f"conformance.test {shlex.join(arguments(wish.seconds))} -report-output=FILE",
    )


def _run(lab: Lab, program: Path, seconds: int, place: Path, say: Callable[[str], None]) -> int:
    """In the control plane's network, as its administrator; output and report go to `place`. The suite's exit status."""
    control = namespace.path(lab.record, lab.topology.control_plane.name)
    argv: list[str | Path] = [program, *arguments(seconds), f"-report-output={place / REPORT}"]
    environment = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig(lab.record))}
    return upstream_e2e.run_logged(namespace.inside(control, argv), place / OUTPUT, environment, say)
