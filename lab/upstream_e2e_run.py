"""One run of upstream's end-to-end tests as a person asks for it: which, the page, and whether all is well."""

from __future__ import annotations

import hashlib
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Invalid
from lab import upstream_e2e
from lab.conformance_page import About, counted, page
from lab.conformance_run import rows
from lab.images import (
    UPSTREAM_AGNHOST,
    UPSTREAM_COREDNS,
    UPSTREAM_IPFIX_COLLECTORS,
    UPSTREAM_NGINX,
    UPSTREAM_SFTP,
    UPSTREAM_TOOLBOX,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.cluster import Lab
    from lab.upstream_e2e import Selection


class UpstreamE2eOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `antrea-lab upstream-e2e`."""

    program: Path
    selection: Path | None
    test: tuple[str, ...]
    resume: bool
    seconds: int
    page: Path | None
    reports: Path | None


def against(lab: Lab, wish: UpstreamE2eOptions, say: Callable[[str], None]) -> bool:
    """Run the selected tests, print and write the results; whether every test that was run has passed.

    Raises Invalid if no test of the selection is meant.
    """
    everything = upstream_e2e.selection(wish.selection or upstream_e2e.LIST).inside(lab.topology.family)
    chosen = everything.of(wish.test)
    if not chosen.tests:
        raise Invalid("--test", f"{' '.join(wish.test)} finds none of {', '.join(everything.tests)}")
    place = (wish.reports or lab.record.directory / "logs" / "upstream-e2e").absolute()
    for test in () if wish.resume else chosen.tests:
        shutil.rmtree(place / test, ignore_errors=True)
    upstream_e2e.suite(
        lab, wish.program.absolute(), chosen, wish.test, place=place, seconds=wish.seconds, say=say
    )
    tests = upstream_e2e.specs(place, chosen)
    for spec in tests:
        if not spec.settled:
            say(f"{spec.result}: {spec.name}: {spec.runs[-1].why}")
    say(f"{counted(tests)}; output: {place}")
    if wish.page:
        specs = upstream_e2e.specs(place, everything)
        wish.page.write_text(page(specs, everything.skip, _about(lab, wish, everything, place)))
    return all(spec.settled for spec in tests) and any(spec.runs for spec in tests)


def _about(lab: Lab, wish: UpstreamE2eOptions, chosen: Selection, place: Path) -> About:
    made = (
        UPSTREAM_AGNHOST,
        UPSTREAM_TOOLBOX,
        UPSTREAM_NGINX,
        UPSTREAM_SFTP,
        UPSTREAM_COREDNS,
        *UPSTREAM_IPFIX_COLLECTORS,
    )
    images = f"{', '.join(made)}, all made by the lab"
    argv = upstream_e2e.arguments("^TEST$", (), seconds=wish.seconds)
    return About(
        f"Upstream's end-to-end tests ({chosen.version}) against the lab",
        "`make upstream-e2e`; not edited by hand. What it does: [upstream-e2e](../upstream-e2e.md).",
        (
            *rows(lab, upstream_e2e.commits(place, chosen)),
            ("Test program", f"`test/e2e` of {chosen.version}, sha256 {_sha256(wish.program)[:16]}"),
            ("Images", images),
            ("Tests", ", ".join(t for t in chosen.tests if upstream_e2e.logs(place, t))),
        ),
        f"e2e.test {shlex.join(argv)} -test.skip=SKIPPED -kind.kubeconfig=FILE -logs-export-dir=DIRECTORY",
    )


def _sha256(program: Path) -> str:
    with program.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
