"""The images that a lab needs besides ours, made from this machine's programs: no registry is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Unavailable
from image_build import oci
from image_build.oci import Image, one_layer
from image_build.rootfs import Tree, static_program
from image_build.step import bound
from lab import e2e_images
from lab.images import COREDNS, PAUSE, UPSTREAM_COREDNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from image_build.step import Progress
    from lab.artifacts import Binaries

PAUSE_SOURCE = Path(__file__).parent / "pause.c"


def standard(binaries: Binaries, progress: Progress) -> list[Image]:
    """The images of every lab: the sandbox, the cluster's DNS server, and those that tests ask for."""
    made = [pause(), coredns(binaries.coredns), *e2e_images.standard(binaries.agnhost, binaries.coredns)]
    progress(f"images ready: {' '.join(name for image in made for name in image.names)}")
    return made


def product(progress: Progress, *options: str) -> Image:
    """Our own image, or that of `options`, built by build/image.py of this checkout; raises `Unavailable` with its last words."""
    builder = Path(__file__).parents[1] / "build/image.py"
    if not builder.exists():
        raise Unavailable("our image: it is built from a checkout, and this is an installed package")
    command = [sys.executable, str(builder), "--describe", *options]
    with subprocess.Popen(
        bound(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as building:
        assert building.stdout is not None
        assert building.stderr is not None
        said = [line.rstrip("\n") for line in _each(building.stderr, progress)]
        answer = building.stdout.read()
    if building.returncode:
        raise Unavailable(f"our image was not built:\n{chr(10).join(said[-20:])}")
    return oci.decode(answer)


def pause() -> Image:
    """The process that holds a Pod's namespaces, a static C program."""

    tree = Tree()
    tree.file("pause", static_program(PAUSE_SOURCE), 0o755)
    return one_layer(PAUSE, tree, ("/pause",))


def coredns(program: Path) -> Image:
    """CoreDNS alone, as its own image has it; also under the name by which upstream's suite asks for it."""
    tree = Tree()
    tree.file("coredns", program, 0o755)
    image = one_layer(COREDNS, tree, ("/coredns",))
    return msgspec.structs.replace(image, names=(*image.names, UPSTREAM_COREDNS))


def _each(lines: Iterable[str], progress: Progress) -> Iterator[str]:
    for line in lines:
        progress(line.rstrip("\n"))
        yield line
