"""Every node's containerd starts with the images already there: unpacked once, then linked for each node."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Unavailable
from image_build import cache, oci
from image_build.step import Progress, bound, last_words, step
from lab.artifacts import COREDNS_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from image_build.oci import Image

PAUSE = "registry.k8s.io/pause:3.10.1"
AGNHOST = "registry.k8s.io/e2e-test-images/agnhost:2.56"  # what e2e.test of Kubernetes v1.34.1 asks for
# the same files under the names of other images of e2e.test: dig, a shell, a server on port 80
JESSIE_DNSUTILS = "registry.k8s.io/e2e-test-images/jessie-dnsutils:1.7"
BUSYBOX = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"
NGINX = "registry.k8s.io/e2e-test-images/nginx:1.14-4"
UPSTREAM_AGNHOST = (
    "registry.k8s.io/e2e-test-images/agnhost:2.40"  # these five: what Antrea v2.3.2's suite asks for
)
POLICY_AGNHOST = (
    "registry.k8s.io/e2e-test-images/agnhost:2.45"  # what network-policy-api v0.2.0's suite asks for
)
UPSTREAM_TOOLBOX = "antrea/toolbox:1.5-1"
UPSTREAM_COREDNS = "coredns/coredns:1.11.3"
UPSTREAM_NGINX = "antrea/nginx:1.21.6-alpine"
UPSTREAM_SFTP = "ghcr.io/atmoz/sftp/debian:latest"
UPSTREAM_IPFIX_COLLECTORS = (  # asked for by its flow visibility tests alone, of v2.3.2 and of fc70f2bb
    "antrea/ipfix-collector:v0.13.0",
    "antrea/ipfix-collector:v0.17.0",
)
COREDNS = f"registry.k8s.io/coredns/coredns:{COREDNS_VERSION}"

CONTENT = "io.containerd.content.v1.content"
METADATA = "io.containerd.metadata.v1.bolt"
SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs"
PARTS = (CONTENT, METADATA, SNAPSHOTS)
DATABASES = (f"{METADATA}/meta.db", f"{SNAPSHOTS}/metadata.db")
SWEPT = "lab/swept:latest"
HELD = "lab.invalid/held"
KEPT_ROOTS = 3
KEPT_LAYERS = 24
CONFIG = """version = 2
root = "{root}"
state = "{state}"
disabled_plugins = [{disabled}]
[grpc]
  address = "{socket}"
[ttrpc]
  address = "{socket}.ttrpc"
"""
# what an import needs is content, metadata, the diff service and one snapshotter; the rest costs start-up time
DISABLED = (
    "io.containerd.grpc.v1.cri",
    "io.containerd.internal.v1.opt",
    "io.containerd.internal.v1.tracing",
    "io.containerd.tracing.processor.v1.otlp",
    *(f"io.containerd.snapshotter.v1.{name}" for name in ("aufs", "btrfs", "devmapper", "native", "zfs")),
)


class SeedRoot(msgspec.Struct, frozen=True):
    """A containerd root folder with the images unpacked, owned by the cache: never to be run on, only seeded from."""

    path: Path
    references: tuple[str, ...]


def prepare(progress: Progress, images: Sequence[Image]) -> SeedRoot:
    """The images unpacked once, cached by what they are; raises `Unavailable` if containerd fails.

    A private containerd imports them into a root of its own, beginning with what an earlier root already has,
    so that a changed layer costs that layer only.
    """
    if not images:
        return SeedRoot(Path("/var/empty"), ())
    wanted = sorted(f"{name} {image.manifest.digest}" for image in images for name in image.references)

    def make(part: Path) -> None:
        with step(progress, f"unpack {len(images)} images"):
            earlier = _nearest(images)
            root = part / "root"
            if earlier:
                _clone(earlier, root)
            _import(images, root)
            layers = "\n".join(sorted({layer.digest for image in images for layer in image.layers}))
            (part / "layers").write_text(layers)

    place = cache.made("seeds", cache.digest(_containerd_version(), *wanted), make)
    cache.keep("seeds", KEPT_ROOTS)
    cache.keep("layers", KEPT_LAYERS)
    return SeedRoot(place / "root", tuple(name for image in images for name in image.references))


def seed(seed_root: SeedRoot, node_containerd_dir: Path) -> None:
    """Give a node's containerd root the images, before that containerd starts.

    Contents and snapshots are hard links (they are never written again: containers get them as an overlay's
    lower folders), the two databases are copies. On another file system than the cache everything is copied.
    """
    _clone(seed_root.path, node_containerd_dir)


def _clone(source: Path, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True, mode=0o711)
    how = "-al" if source.stat().st_dev == to.stat().st_dev else "-a"
    subprocess.run(["cp", how, *(source / part for part in PARTS), to], check=True)
    for database in DATABASES:
        copy = to / f"{database}.copy"
        shutil.copy2(source / database, copy)
        copy.replace(to / database)


def _nearest(images: Sequence[Image]) -> Path | None:
    """The cached root that has most bytes of these images, if any has some."""
    sizes = {layer.digest: layer.size for image in images for layer in image.layers}
    best: tuple[int, Path | None] = (0, None)
    for layers in (cache.folder() / "seeds").glob("[!.]*/layers"):
        shared = sum(sizes.get(digest, 0) for digest in layers.read_text().splitlines())
        best = max(best, (shared, layers.parent / "root"), key=lambda candidate: candidate[0])
    return best[1]


def _import(images: Sequence[Image], root: Path) -> None:
    names = {name for image in images for name in image.references}
    with containerd(root) as ctr:
        _hold(names, ctr)
        _send(images, root, ctr)
        standing = subprocess.run(
            [*ctr, "images", "ls", "-q"], check=True, capture_output=True, text=True
        ).stdout
        # one name more to remove: only the end of a removal waits for the collection of what nothing names now
        subprocess.run(
            [*ctr, "images", "tag", "--force", min(names), SWEPT], check=True, stdout=subprocess.DEVNULL
        )
        old = [name for name in standing.split() if name not in names]
        subprocess.run([*ctr, "images", "rm", "--sync", *old, SWEPT], check=True, stdout=subprocess.DEVNULL)


def _hold(names: set[str], ctr: list[str]) -> None:
    """Name what these names mean now once more: an import takes a name over before it unpacks, and a collection in
    between would remove the layers that old and new share. The import's clean-up removes the further names."""
    listed = subprocess.run([*ctr, "images", "ls", "-q"], check=True, capture_output=True, text=True).stdout
    for number, name in enumerate(names.intersection(listed.split())):
        held = f"{HELD}{number}:latest"
        subprocess.run([*ctr, "images", "tag", "--force", name, held], check=True, stdout=subprocess.DEVNULL)


def _send(images: Sequence[Image], root: Path, ctr: list[str]) -> None:
    blobs = {f"sha256:{path.name}" for path in (root / CONTENT / "blobs/sha256").glob("*")}
    with tempfile.TemporaryFile() as said:
        importing = subprocess.Popen(
            bound([*ctr, "images", "import", "-"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        assert importing.stdin is not None
        # ctr may end early: its exit code and last words tell why
        with contextlib.suppress(BrokenPipeError), importing.stdin as stream:
            oci.write(images, stream, omit=blobs)
        if importing.wait():
            said.seek(0)
            why = said.read().decode(errors="replace").strip()
            raise Unavailable(f"images: containerd did not import them: {why}")


@contextlib.contextmanager
def containerd(root: Path) -> Iterator[list[str]]:
    """A containerd of our own on `root`, in a mount namespace of its own; yields the `ctr` that talks to it."""
    with tempfile.TemporaryDirectory(prefix="antrea-lab-seed-") as state:
        socket = Path(state) / "containerd.sock"
        config = Path(state) / "config.toml"
        disabled = ", ".join(f'"{plugin}"' for plugin in DISABLED)
        config.write_text(CONFIG.format(root=root, state=f"{state}/state", disabled=disabled, socket=socket))
        log = Path(state) / "log"
        alone = ["unshare", "--mount", "--propagation", "private", "--"]
        with log.open("wb") as out:
            daemon = subprocess.Popen(
                bound([*alone, "containerd", "-c", config]), stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        ctr = ["ctr", "--address", str(socket), "-n", "k8s.io"]
        try:
            _wait(daemon, ctr, log)
            yield ctr
        finally:
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _wait(daemon: subprocess.Popen[bytes], ctr: list[str], log: Path) -> None:
    deadline = time.monotonic() + 30
    while subprocess.run([*ctr, "version"], capture_output=True, check=False).returncode:
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise Unavailable(f"images: containerd did not start:\n{last_words(log)}")
        time.sleep(0.05)


def _containerd_version() -> str:
    if not shutil.which("containerd"):
        raise Unavailable(
            "images: no containerd on this machine: run scripts/bootstrap, or apt-get install containerd"
        )
    return subprocess.run(["containerd", "--version"], check=True, capture_output=True, text=True).stdout
