"""A release of the commit that is checked out: images, chart, manifests, antctl, what they are made of, checksums and a signature.

    python build/release.py --key FILE [--out FOLDER]    sign with a private key of ssh-keygen
    python build/release.py --unsigned                   for a try: a release that nobody can verify

Everything is built from the files of the commit, in a folder of its own, so that the tree has to be clean. Packages of
Debian are those of the day. Progress goes to stderr.

To verify, with the maintainers' public keys in the file `signers` (`release ssh-ed25519 AAAA...`), in the folder of the release:

    sha256sum --check SHA256SUMS
    ssh-keygen -Y verify -f signers -I release -n antrea-release -s SHA256SUMS.sig < SHA256SUMS
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "build")]

from antrea import VERSION  # noqa: E402
from antrea.errors import AntreaError, Unavailable  # noqa: E402
from image_build.platform import PLATFORMS  # noqa: E402
from image_build.step import step  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

IMAGES = {
    "antrea": (),
    "antrea-flow-aggregator": ("--flow-aggregator",),
    "antrea-l7-engine": ("--l7-engine",),
    "antrea-bgp-engine": ("--bgp-engine",),
}
"""Images by their name in the release, with the options of build/image.py."""
SUMS = "SHA256SUMS"
DESCRIPTION = "release.json"
NAMESPACE = "antrea-release"
"""What a signature is for: one that the same key made for another purpose is not taken."""


def commit_of(tree: Path) -> str:
    """The commit that is checked out. Raises `Unavailable` if files differ from it, with their names."""
    changed = _git(tree, "status", "--porcelain").splitlines()
    if changed:
        names = ", ".join(line[3:] for line in changed[:5])
        raise Unavailable(
            f"{len(changed)} files of the tree are not those of the commit ({names}): commit or remove them"
        )
    return _git(tree, "rev-parse", "HEAD").strip()


def export(tree: Path, commit: str, to: Path) -> None:
    """Write the files of the commit, and no other, into a folder."""
    archive = subprocess.run(["git", "-C", tree, "archive", commit], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(to, filter="data")


def images(tree: Path, out: Path, names: Sequence[str], architectures: Sequence[str]) -> None:
    """An archive and a bill of materials of each image for each architecture."""
    for name in names:
        for architecture in architectures:
            to = out / f"{name}-v{VERSION}-{architecture}.tar"
            words = ["build/image.py", *IMAGES[name], "--architecture", architecture, "--out", str(to)]
            with step(show, f"release: {to.name}"):
                _python(tree, words)


def chart(tree: Path, out: Path, helm: str) -> None:
    """The chart's package, by Helm, with a time of zero in it."""
    place = ["package", str(tree / "build/charts/antrea"), "--destination", str(out)]
    version = ["--version", VERSION, "--app-version", VERSION]
    with step(show, "release: chart"):
        subprocess.run([helm, *place, *version], check=True, stdout=subprocess.DEVNULL)
    package = out / f"antrea-{VERSION}.tgz"
    package.write_bytes(without_times(package.read_bytes()))


def without_times(package: bytes) -> bytes:
    """The same archive, its files sorted and of the time zero: Helm writes the time of packing."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(package)) as tar,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as to,
    ):
        for entry in sorted(tar, key=lambda entry: entry.name):
            entry.mtime = 0
            to.addfile(entry, tar.extractfile(entry))
    return gzip.compress(packed.getvalue(), mtime=0)


def manifests_and_wheel(tree: Path, out: Path) -> None:
    """Manifests for kubectl, and antctl as a package of Python that needs no compiler."""
    for manifest in sorted((tree / "build/yamls").glob("*.yml")):
        shutil.copy(manifest, out)
    with step(show, "release: wheel of antctl"):
        _python(tree, ["build/wheel.py", "--pure", "--out", str(out)])


def antctl(tree: Path, out: Path) -> None:
    """antctl as one file with its packages, which pip downloads for each Python and platform."""
    with step(show, "release: antctl"):
        _python(tree, ["build/antctl_file.py", "--out", str(out)])


def description(commit: str, out: Path) -> dict[str, Any]:
    """What publish reads: the version, the commit, and the archives of each image by architecture."""
    archives = {
        name: {
            architecture: file.name
            for architecture in PLATFORMS
            if (file := out / f"{name}-v{VERSION}-{architecture}.tar").exists()
        }
        for name in IMAGES
    }
    return {
        "version": VERSION,
        "commit": commit,
        "images": {name: found for name, found in archives.items() if found},
        "chart": f"antrea-{VERSION}.tgz",
    }


def sums(out: Path) -> str:
    """Lines that `sha256sum --check` reads, of every file but the sums themselves."""
    return "".join(f"{_hash(file)}  {file.name}\n" for file in _listed(out))


def sign(out: Path, key: Path) -> None:
    """Sign the sums. Raises `Unavailable` with the words of ssh-keygen."""
    (out / f"{SUMS}.sig").unlink(missing_ok=True)
    words = ["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(out / SUMS)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"ssh-keygen does not sign with {key}: {done.stderr.strip()}")


def release(tree: Path, out: Path, options: argparse.Namespace) -> None:
    """Write all files into the folder, which takes its place when it is whole. Raises AntreaError."""
    commit = commit_of(tree)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as room:
        source, made = Path(room, "source"), Path(room, "release")
        made.mkdir()
        export(tree, commit, source)
        images(source, made, options.images, options.architectures)
        chart(source, made, options.helm)
        manifests_and_wheel(source, made)
        antctl(source, made)
        text = json.dumps(description(commit, made), indent=2)
        (made / DESCRIPTION).write_text(f"{text}\n")
        (made / SUMS).write_text(sums(made))
        if options.key:
            sign(made, options.key)
        shutil.rmtree(out, ignore_errors=True)
        made.rename(out)


def show(line: str) -> None:
    """Progress, to stderr."""
    print(line, file=sys.stderr, flush=True)


def _listed(out: Path) -> Iterator[Path]:
    yield from sorted(file for file in out.iterdir() if not file.name.startswith(SUMS))


def _hash(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _git(tree: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", tree, *words], check=True, capture_output=True, text=True).stdout


def _python(tree: Path, words: Sequence[str]) -> None:
    """Run a program of the exported tree, whose own modules it then imports."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=tree, env=environment, check=False, stdout=subprocess.DEVNULL
    )
    if done.returncode:
        raise Unavailable(f"{words[0]} failed with {done.returncode}: its words are above")


def main() -> int:
    """0 if the release is there; 1 if it cannot be made now, with the reason."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    signature = parser.add_mutually_exclusive_group(required=True)
    signature.add_argument(
        "--key", type=Path, help="private key for ssh-keygen -Y sign, which may be a hardware key's"
    )
    signature.add_argument("--unsigned", action="store_true", help="without a signature")
    parser.add_argument("--helm", default="helm", help="the program, if it is not in PATH")
    parser.add_argument("--out", type=Path, default=ROOT / f"build/out/release/v{VERSION}")
    parser.add_argument("--images", nargs="+", choices=IMAGES, default=list(IMAGES))
    parser.add_argument("--architectures", nargs="+", choices=PLATFORMS, default=list(PLATFORMS))
    options = parser.parse_args()
    if not shutil.which(options.helm):
        parser.error("helm is not in PATH: install it, or name it by --helm, as `make release` does")
    try:
        release(ROOT, options.out.resolve(), options)
    except AntreaError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
