"""`make push`: an image archive reaches a registry on loopback, whole, with its user's credentials and certificate."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from loopback_registry import registry

from antrea import IMAGE, VERSION
from image_build import oci
from image_build.rootfs import Tree
from lab.certificates import authority, issue

ROOT = Path(__file__).parents[3]
PUSH = (sys.executable, str(ROOT / "build/push.py"))
HTPASSWD = "anna:$2b$04$XoRNwrL/XdaBRp1T3gBdOuN9AH7ll6L0xwtThnd2eSisHZlCI1ZlG\n"
"""bcrypt of "secret"."""
ACCEPT = "application/vnd.oci.image.manifest.v1+json"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small image under our image's name."""
    tree = Tree()
    tree.file("hello", b"antrea")
    place = tmp_path_factory.mktemp("image")
    tar = place / "layer.tar"
    with tar.open("wb+") as out:
        tree.write(out)
    data = tar.read_bytes()
    layer = oci.Layer(tar, f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))
    to = place / "antrea.tar"
    oci.save([oci.Image((f"{IMAGE}:v{VERSION}",), (layer,))], to)
    return to


def push(folder: Path, *words: str) -> tuple[int, str]:
    environment = {**os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    done = subprocess.run(
        [*PUSH, *words], capture_output=True, text=True, check=False, timeout=120, env=environment
    )
    return done.returncode, done.stderr


def test_an_archive_is_pushed_under_our_version_and_is_whole(archive: Path, tmp_path: Path) -> None:
    with registry(tmp_path) as host:
        status, said = push(tmp_path, f"{host}/team/antrea", "--plain", "--archive", str(archive))
        assert (status, f"pushed {host}/team/antrea:v{VERSION}" in said) == (0, True), said
        asked = urllib.request.Request(
            f"http://{host}/v2/team/antrea/manifests/v{VERSION}", headers={"Accept": ACCEPT}
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            manifest = json.load(answer)
        (layer,) = manifest["layers"]
        assert (
            urllib.request.urlopen(f"http://{host}/v2/team/antrea/blobs/{layer['digest']}", timeout=30).status
            == 200
        )
        assert push(tmp_path, f"{host}/team/antrea:mine", "--plain", "--archive", str(archive))[0] == 0


def test_credentials_and_the_registrys_own_authority_are_taken(archive: Path, tmp_path: Path) -> None:
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    ca = authority(tmp_path, "ca", "registry")
    shutil.copy(tmp_path / "ca.crt", trusted)
    pair = issue(ca, "server", "localhost", sans=("localhost", "127.0.0.1"))
    (tmp_path / "htpasswd").write_text(HTPASSWD)
    tls = {"certificate": str(pair.certificate), "key": str(pair.key)}
    auth = {"htpasswd": {"realm": "ours", "path": str(tmp_path / "htpasswd")}}
    with registry(tmp_path, tls=tls, auth=auth) as host:
        to, words = f"{host}/antrea", ("--archive", str(archive))
        assert push(tmp_path, to, *words)[0] == 1  # nobody it trusts
        status, said = push(tmp_path, to, *words, "--certificates", str(trusted))
        assert (status, "auth" in said) == (1, True)
        login = base64.b64encode(b"anna:secret").decode()
        (tmp_path / "auth.json").write_text(json.dumps({"auths": {host: {"auth": login}}}))
        with_both = (*words, "--certificates", str(trusted), "--authfile", str(tmp_path / "auth.json"))
        assert push(tmp_path, to, *with_both)[0] == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("antrea",), "'antrea' is no name such as registry.example.com/team/antrea"),
        (("registry.example.com/Team/antrea",), "is no name such as"),
        (("registry.example.com/antrea", "--archive", "/nowhere.tar"), "run `make image`"),
    ],
)
def test_what_cannot_be_pushed_is_one_sentence(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    status, said = push(tmp_path, *words)
    assert (status, said.count("\n"), why in said) == (2, 1, True)
