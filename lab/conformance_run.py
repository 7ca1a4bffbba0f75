"""One conformance run as a person asks for it: programs, specs, page, and whether all is well."""

from __future__ import annotations

import contextlib
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from antrea import VERSION
from lab import artifacts, conformance, conformance_balancer, conformance_cluster
from lab.conformance import PASSED
from lab.conformance_page import About, counted, page

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lab.cluster import Lab


class ConformanceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `antrea-lab conformance`."""

    focus: str | None
    load_balancer: bool
    resume: bool
    processes: int
    seconds: int
    page: Path | None
    reports: Path | None


def against(lab: Lab, wish: ConformanceOptions, say: Callable[[str], None]) -> bool:
    """Run the selected specs, print and write the results; whether every spec that is not left out has passed."""
    settings = lab.settings
    chosen = conformance.selection(settings.kube_proxy, settings.family, load_balancer=wish.load_balancer)
    if wish.focus:
        chosen = msgspec.structs.replace(chosen, focus=wish.focus)
    ginkgo = artifacts.ginkgo(say) if wish.processes > 1 else None
    program = conformance.Program(artifacts.e2e_test(say), ginkgo, wish.processes)
    place = (wish.reports or lab.record.directory / "logs" / "conformance").absolute()
    if not wish.resume:
        conformance.clear(place)
    conformance_cluster.serve(lab, say)
    with conformance_balancer.balanced(lab) if wish.load_balancer else contextlib.nullcontext():
        specs = conformance.suite(lab, program, chosen, place=place, seconds=wish.seconds, say=say)
    for spec in specs:
        if not spec.settled:
            say(f"{spec.result}: {spec.name}{f': {spec.runs[-1].why}' if spec.runs else ''}")
    say(f"{counted(specs)}; reports and output: {place}")
    if wish.page:
        wish.page.write_text(
            page(
                specs,
                chosen.skip,
                About(
                    "Kubernetes' network specs against the lab",
                    "`make conformance`; not edited by hand. What it does: [conformance](../conformance.md).",
                    rows(lab, conformance.commits(place, chosen)),
                    conformance.command_line(
                        program, chosen, nodes=len(lab.topology.nodes), seconds=wish.seconds
                    ),
                ),
            )
        )
    return bool(specs) and all(spec.settled for spec in specs) and any(_passed(spec) for spec in specs)


def _passed(spec: conformance.Spec) -> bool:
    return bool(spec.runs) and spec.runs[-1].status == PASSED


def rows(lab: Lab, commits: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Where and when a suite ran, and what it ran against."""
    settings = lab.settings
    return (
        ("Commit", f"{', '.join(commits)}, version {VERSION}"),
        ("Date", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"),
        ("Kubernetes", artifacts.KUBERNETES_VERSION),
        (
            "Lab",
            f"{settings.nodes} nodes, {settings.family}, kube-proxy {settings.kube_proxy}, {settings.cni}",
        ),
        ("Kernel", platform.release()),
    )
