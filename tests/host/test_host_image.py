"""Images in a real containerd: seeded from one copy, run from there, and our own image without the host's /usr."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from antrea.lab import image_recipe, images, oci
from antrea.lab.oci import Image
from antrea.lab.rootfs import Tree

if TYPE_CHECKING:
    from antrea.lab.images import SeedRoot

NAME = "example.org/lab/tools:1"


def tools(text: bytes) -> Image:
    """busybox, and on top of it a layer with `text`."""
    lower, upper = Tree(), Tree()
    lower.file("bin/busybox", Path("/bin/busybox"), 0o755)
    lower.folder("etc")
    upper.file("etc/text", text)
    layers = tuple(oci.layer(tree.key(), tree.write) for tree in (lower, upper))
    return Image((NAME,), layers, ("/bin/busybox",))


def inodes(root: SeedRoot) -> dict[int, str]:
    return {p.stat().st_ino: p.name for p in root.path.rglob("*") if p.is_file() and p.suffix != ".db"}


def run_on(root: SeedRoot, name: str, *command: str) -> str:
    """Output of a command in a container of a containerd that was seeded from there."""
    with tempfile.TemporaryDirectory(prefix="antrea-t-node-", dir=root.path.parents[2]) as node:
        images.seed(root, Path(node))
        with images.containerd(Path(node)) as ctr:
            words = [*ctr, "run", "--rm", name, f"t-{os.getpid()}", *command]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
            assert done.returncode == 0, done.stderr
            return done.stdout


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTREA_LAB_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("own_cache")
def test_a_seeded_containerd_runs_the_image_and_leaves_the_seed_as_it_was() -> None:
    root = images.prepare(lambda _: None, [tools(b"one"), image_recipe.pause()])
    assert root.references == (NAME, images.PAUSE)
    script = "/bin/busybox cat /etc/text; echo two > /etc/text; /bin/busybox cat /etc/text"
    for _ in range(2):
        assert run_on(root, NAME, "/bin/busybox", "sh", "-c", script) == "onetwo\n"


@pytest.mark.usefixtures("own_cache")
def test_a_changed_upper_layer_unpacks_that_layer_only() -> None:
    first = images.prepare(lambda _: None, [tools(b"one")])
    second = images.prepare(lambda _: None, [tools(b"two")])
    shared = {name for inode, name in inodes(second).items() if inode in inodes(first)}
    assert "busybox" in shared
    assert "text" not in shared
    assert run_on(first, NAME, "/bin/busybox", "cat", "/etc/text") == "one"
    assert run_on(second, NAME, "/bin/busybox", "cat", "/etc/text") == "two"


@pytest.mark.usefixtures("own_cache")
def test_what_is_no_longer_wanted_is_not_in_the_next_root() -> None:
    images.prepare(lambda _: None, [tools(b"one"), image_recipe.pause()])
    root = images.prepare(lambda _: None, [tools(b"one")])
    assert "pause" not in inodes(root).values()


@pytest.mark.usefixtures("own_cache")
def test_preparing_again_asks_containerd_nothing() -> None:
    lines: list[str] = []
    roots = [images.prepare(lines.append, [tools(b"one")]) for _ in range(2)]
    assert roots[0] == roots[1]
    assert [line.split(":")[0] for line in lines] == ["unpack 1 images ...", "unpack 1 images"]
