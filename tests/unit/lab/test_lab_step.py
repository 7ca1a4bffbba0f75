"""Progress of a long command: how much is done of how much."""

from __future__ import annotations

from image_build.step import Expected
from lab.go_build import PACKAGE

LOG = """\
go: downloading k8s.io/api v0.34.1
internal/goarch
k8s.io/apimachinery/pkg/util/sets
# k8s.io/broken
sigs.k8s.io/structured-merge-diff/v6/fieldpath
"""


def test_packages_that_are_compiled_are_counted_and_nothing_else() -> None:
    assert Expected(1200, "packages", PACKAGE).done(LOG) == "3 of 1200 packages"
    # packages of two programs are compiled once for each where they differ
    assert Expected(2, "packages", PACKAGE).done(LOG) == "2 of 2 packages"
