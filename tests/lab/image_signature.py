"""Signatures of images as tools of containers/image judge them: the skopeo of Debian 13 pulls by a policy. That of Debian 12 is built without it."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from build import debian_root

TOOLS = "skopeo,ca-certificates"


def skopeo(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it in a root directory of that Debian, where it sees the folder alone (root)."""
    with debian_root.inside(("skopeo", *words), at=folder, shown=(folder,), tools=TOOLS) as inside:
        return subprocess.run(
            inside, capture_output=True, text=True, check=False, timeout=600, env=debian_root.ENVIRONMENT
        )


def new_key(folder: Path, name: str) -> None:
    """Write `name`.key and `name`.pub into the folder by the commands of docs/release.md, without a passphrase."""
    curve = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", f"{name}.key")
    public = ("-in", f"{name}.key", "-pubout", "-out", f"{name}.pub")
    for words in (("genpkey", *curve), ("pkey", *public)):
        subprocess.run(["openssl", *words], cwd=folder, check=True, timeout=60)


def why_refused(image: str, key: Path, architecture: str = "amd64") -> str:
    """Pull from a registry without TLS by a policy that takes what this public key signed and nothing else; "" if it is taken."""
    with tempfile.TemporaryDirectory(prefix="antrea-signed-") as name:
        folder = Path(name)
        (folder / "images.pub").write_bytes(key.read_bytes())
        scope = image.rpartition(":")[0]
        rule = {"type": "sigstoreSigned", "keyPath": str(folder / "images.pub")}
        policy = {"default": [{"type": "reject"}], "transports": {"docker": {scope: [rule]}}}
        (folder / "policy.json").write_text(json.dumps(policy))
        (folder / "registries.d").mkdir()
        attached = {"docker": {scope: {"use-sigstore-attachments": True}}}
        (folder / "registries.d/attached.yaml").write_text(json.dumps(attached))
        options = ("--policy", "policy.json", "--registries.d", "registries.d")
        words = ("copy", "--src-tls-verify=false", "--remove-signatures", f"docker://{image}", "dir:pulled")
        done = skopeo(folder, *options, "--override-arch", architecture, *words)
        return done.stderr if done.returncode else ""
