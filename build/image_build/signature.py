"""Signatures of images in a registry, which cosign and the tools of containers/image find beside the image and verify.

The signed text names the image and its digest; it is the one layer of an image with the tag `sha256-<digest>.sig` in the same
repository, and the signature is an annotation of that layer. Source: specs/SIGNATURE_SPEC.md of github.com/sigstore/cosign,
containers-signature(5). openssl signs, so that keys may be encrypted, or in hardware by a provider.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from typing import TYPE_CHECKING, Any

from antrea.errors import Unavailable
from image_build.oci import CONFIG, INDEX, MANIFEST

if TYPE_CHECKING:
    from pathlib import Path

PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE = "dev.cosignproject.cosign/signature"
REFERENCE = "signature"
"""Name of the signature in its OCI layout."""


def payload(image: str, digest: str) -> bytes:
    """The text to sign: `image` with its tag, and its digest (`sha256:...`)."""
    critical = {
        "identity": {"docker-reference": image},
        "image": {"docker-manifest-digest": digest},
        "type": "cosign container image signature",
    }
    return json.dumps({"critical": critical, "optional": None}).encode()


def sign(text: bytes, key: Path, passphrase: Path | None) -> str:
    """Return the signature of SHA-256 in base64. Without a file with the passphrase openssl asks for it. Raises Unavailable."""
    command = ["openssl", "dgst", "-sha256", "-sign", str(key)]
    if passphrase:
        command += ["-passin", f"file:{passphrase}"]
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise Unavailable(
            f"openssl does not sign with {key}: it says why above; the key has to be of ECDSA or RSA, in PEM"
        )
    return base64.b64encode(done.stdout).decode()


def tag(digest: str) -> str:
    """Return the tag of the signature of an image with this digest."""
    return f"{digest.replace(':', '-')}.sig"


def write_layout(folder: Path, text: bytes, signature: str) -> None:
    """Write a signature as an OCI layout with the name REFERENCE."""
    (folder / "blobs/sha256").mkdir(parents=True)
    layer = {**_blob(folder, PAYLOAD, text), "annotations": {SIGNATURE: signature}}
    config = {
        "architecture": "",
        "os": "",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _blob(folder, CONFIG, json.dumps(config).encode()),
        "layers": [layer],
    }
    named = _blob(folder, MANIFEST, json.dumps(manifest).encode())
    named["annotations"] = {"org.opencontainers.image.ref.name": REFERENCE}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))


def _blob(folder: Path, kind: str, content: bytes) -> dict[str, Any]:
    """Write content, and return its descriptor."""
    digest = hashlib.sha256(content).hexdigest()
    (folder / "blobs/sha256" / digest).write_bytes(content)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}
