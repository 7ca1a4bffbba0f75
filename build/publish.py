"""Bring a release to a registry: its images, each for all its architectures under one name, and its chart.

    python build/publish.py registry.example.com/team [--release FOLDER] [--signers FILE]

The checksums of the release are verified first and, with --signers (the `allowed signers` of ssh-keygen), its signature as `release`.
With --image-key, a private key for `openssl dgst -sign`, each image is signed in the registry, and so is the one of each architecture.
Credentials are those of `skopeo login`, `docker login` or `podman login`, or of --authfile. Layers that the registry has are not sent
again. The last lines are the command that installs from there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
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
from image_build import signature  # noqa: E402
from image_build.oci import INDEX, MANIFEST  # noqa: E402
from image_build.skopeo import (  # noqa: E402
    MISSING,
    add_registry_options,
    copy_command,
    inspect_command,
    is_installed,
)
from image_build.step import step  # noqa: E402
from release import DESCRIPTION, NAMESPACE, SUMS, show  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping

IDENTITY = "release"
"""Name of the signer among the allowed ones."""
REGISTRY = re.compile(r"[\w.-]+(?::\d+)?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*", re.ASCII)


def verify(folder: Path, signers: Path | None) -> dict[str, Any]:
    """The description of a release whose files are those that were signed. Raises `Unavailable`."""
    if not (folder / SUMS).exists():
        raise Unavailable(f"{folder} has no {SUMS}: run `make release` first")
    done = subprocess.run(
        ["sha256sum", "--check", "--quiet", "--strict", SUMS],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Unavailable(f"files of {folder} are not those of its {SUMS}: {done.stdout}{done.stderr}")
    if signers:
        words = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", IDENTITY, "-n", NAMESPACE]
        with (folder / SUMS).open("rb") as signed:
            done = subprocess.run(
                [*words, "-s", str(folder / f"{SUMS}.sig")],
                stdin=signed,
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode:
            raise Unavailable(f"the signature of {folder} is not valid: {done.stdout}{done.stderr}")
    described: dict[str, Any] = json.loads((folder / DESCRIPTION).read_text())
    return described


def layout(folder: Path, archives: Mapping[str, str], to: Path) -> None:
    """One OCI layout of the archives of an image: the name `release` means the image of each architecture."""
    manifests = []
    for architecture, archive in sorted(archives.items()):
        with tarfile.open(folder / archive) as tar:
            tar.extractall(to, filter="data")
        (entry,) = json.loads((to / "index.json").read_text())["manifests"]
        platform = {"architecture": architecture, "os": "linux"}
        manifests.append(
            {"mediaType": MANIFEST, "digest": entry["digest"], "size": entry["size"], "platform": platform}
        )
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).encode()
    digest = hashlib.sha256(index).hexdigest()
    (to / "blobs/sha256" / digest).write_bytes(index)
    named = {
        "mediaType": INDEX,
        "digest": f"sha256:{digest}",
        "size": len(index),
        "annotations": {"org.opencontainers.image.ref.name": "release"},
    }
    (to / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}))


def sign_images(options: argparse.Namespace, image: str, digest: str) -> None:
    """Sign the image of all architectures that was sent, by its digest, and that of each. Raises AntreaError."""
    repository = image.rpartition(":")[0]
    words = inspect_command(options, f"docker://{repository}@{digest}")
    index = subprocess.run(words, check=False, stdout=subprocess.PIPE).stdout
    if f"sha256:{hashlib.sha256(index).hexdigest()}" != digest:
        raise Unavailable(f"the registry does not answer with {repository}@{digest}, which was sent there")
    for signed in (digest, *(one["digest"] for one in json.loads(index)["manifests"])):
        text = signature.payload(image, signed)
        made = signature.sign(text, options.image_key, options.image_passphrase)
        with tempfile.TemporaryDirectory(prefix="antrea-signature-") as room:
            signature.write_layout(Path(room), text, made)
            to = f"docker://{repository}:{signature.tag(signed)}"
            _run([*copy_command(options, "--preserve-digests"), f"oci:{room}:{signature.REFERENCE}", to])


def helm_options(options: argparse.Namespace) -> list[str]:
    """Return the options of Helm that describe the connection to the registry."""
    words = ["--plain-http"] if options.plain else []
    if options.authfile:
        words += ["--registry-config", str(options.authfile)]
    if options.certificates:
        for name, flag in (
            ("ca.crt", "--ca-file"),
            ("client.cert", "--cert-file"),
            ("client.key", "--key-file"),
        ):
            if (options.certificates / name).exists():
                words += [flag, str(options.certificates / name)]
    return words


def publish(options: argparse.Namespace) -> None:
    """Send everything. Raises AntreaError."""
    folder, registry = options.release, options.registry
    described = verify(folder, options.signers)
    for name, archives in described["images"].items():
        to = f"{registry}/{name}:v{described['version']}"
        with (
            step(show, f"publish: {to} for {', '.join(archives)}"),
            tempfile.TemporaryDirectory(prefix=".publish-", dir=folder.parent) as room,
        ):
            image, digest = Path(room, "image"), Path(room, "digest")
            image.mkdir()
            layout(folder, archives, image)
            copy = copy_command(options, "--all", "--digestfile", str(digest))
            _run([*copy, f"oci:{image}:release", f"docker://{to}"])
            if options.image_key:
                sign_images(options, to, digest.read_text().strip())
    place = f"oci://{registry}/charts"
    with step(show, f"publish: {place}/antrea"):
        _run([options.helm, "push", str(folder / described["chart"]), place, *helm_options(options)])
    print(
        f"helm install antrea {place}/antrea --version {described['version']} --namespace kube-system"
        f" --set image.repository={registry}/antrea{' --plain-http' * options.plain}"
    )


def _run(words: list[str]) -> None:
    done = subprocess.run(words, check=False, stdout=sys.stderr)
    if done.returncode:
        raise Unavailable(
            f"{words[0]} failed with {done.returncode}: it says why above; run this again to go on"
        )


def main() -> int:
    """0 if the registry has everything; 1 with the reason; 2 if the user has to change the command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("registry", help="a registry and a path in it, such as registry.example.com/team")
    parser.add_argument("--release", type=Path, default=ROOT / f"build/out/release/v{VERSION}")
    parser.add_argument(
        "--signers", type=Path, help="allowed signers: refuse a release that none of them signed"
    )
    parser.add_argument(
        "--image-key", type=Path, help="sign images in the registry with this private key of ECDSA or RSA"
    )
    parser.add_argument(
        "--image-passphrase", type=Path, help="file with its passphrase (default: openssl asks for it)"
    )
    parser.add_argument("--helm", default="helm", help="the program, if it is not in PATH")
    add_registry_options(parser)
    options = parser.parse_args()
    if not REGISTRY.fullmatch(options.registry):
        parser.error(f"{options.registry!r} is no name such as registry.example.com/team")
    if options.image_key and not options.image_key.exists():
        parser.error(f"--image-key: there is no file {options.image_key}")
    if not shutil.which(options.helm):
        parser.error("helm is not in PATH: install it, or name it by --helm, as `make publish` does")
    if not is_installed():
        parser.error(MISSING)
    try:
        publish(options)
    except AntreaError as error:
        print(f"publish: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
