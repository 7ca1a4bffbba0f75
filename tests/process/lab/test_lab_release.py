"""`make release` and `make publish`: a clean tree alone, files that verify, and a registry on loopback that has all of it."""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from build_program import load_build_program
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from loopback_registry import registry

from antrea import VERSION
from antrea.errors import Unavailable
from image_build import oci
from image_build.rootfs import Tree
from lab import artifacts

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "build"))
release = load_build_program("release")
PUBLISH = (sys.executable, str(ROOT / "build/publish.py"))
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def git(tree: Path, *words: str) -> None:
    own = ["-c", "user.name=Anna", "-c", "user.email=anna@example.com"]
    subprocess.run(["git", *own, "-C", tree, *words], check=True, capture_output=True, timeout=60)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one commit."""
    made = tmp_path / "tree"
    made.mkdir()
    git(made, "init", "-q")
    (made / "kept").write_text("1\n")
    (made / ".gitignore").write_text("ignored\n")
    git(made, "add", ".")
    git(made, "commit", "-qm", "first")
    return made


def test_a_tree_whose_files_are_not_those_of_the_commit_is_refused(tree: Path) -> None:
    commit = release.commit_of(tree)
    (tree / "kept").write_text("2\n")
    (tree / "new").write_text("\n")
    with pytest.raises(Unavailable, match=r"2 files of the tree are not those of the commit \(kept, new\)"):
        release.release(tree, tree.parent / "out", argparse.Namespace())
    assert len(commit) == 40


def test_what_is_built_is_what_the_commit_has(tree: Path, tmp_path: Path) -> None:
    (tree / "ignored").write_text("of this machine")
    release.export(tree, release.commit_of(tree), tmp_path / "to")
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == [".gitignore", "kept"]


def test_the_charts_package_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    packages = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        release.chart(ROOT, tmp_path / name, str(artifacts.helm(print)))
        packages.append((tmp_path / name / f"antrea-{VERSION}.tgz").read_bytes())
    assert packages[0] == packages[1]
    with tarfile.open(fileobj=io.BytesIO(packages[0])) as tar:
        assert {entry.mtime for entry in tar} == {0}
        chart = tar.extractfile("antrea/Chart.yaml")
        assert chart is not None
        described = yaml.safe_load(chart.read())
    assert (described["version"], described["appVersion"]) == (VERSION, VERSION)


def test_antctls_wheel_and_the_manifests_have_the_same_bytes_each_time(tmp_path: Path) -> None:
    made = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        release.manifests_and_wheel(ROOT, tmp_path / name)
        made.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert made[0] == made[1]
    assert {"antrea.yml", f"antrea-{VERSION}-py3-none-any.whl"} <= made[0].keys()


def small_image(folder: Path, name: str, architecture: str) -> None:
    """An archive as build/image.py writes it."""
    tree = Tree()
    tree.file("hello", architecture.encode())
    layer_file = folder / "layer"
    with layer_file.open("wb+") as out:
        tree.write(out)
    data = layer_file.read_bytes()
    layer = oci.Layer(layer_file, f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))
    image = oci.Image((f"localhost/{name}:v{VERSION}",), (layer,), architecture=architecture)
    oci.save([image], folder / f"{name}-v{VERSION}-{architecture}.tar")
    layer_file.unlink()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A maintainer's key; the allowed signers are beside it."""
    made = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", made], check=True, timeout=60)
    (tmp_path / "signers").write_text(f"release {made.with_suffix('.pub').read_text()}")
    return made


@pytest.fixture
def made(tmp_path: Path, key: Path) -> Path:
    """A signed release of small images and the real chart."""
    folder = tmp_path / "release"
    folder.mkdir()
    for name in ("antrea", "antrea-l7-engine"):
        for architecture in ("amd64", "arm64"):
            small_image(folder, name, architecture)
    release.chart(ROOT, folder, str(artifacts.helm(print)))
    (folder / release.DESCRIPTION).write_text(json.dumps(release.description("0" * 40, folder)))
    (folder / release.SUMS).write_text(release.sums(folder))
    release.sign(folder, key)
    return folder


def publish(folder: Path, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*PUBLISH, *words, "--release", folder, "--helm", artifacts.helm(print)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    return done.returncode, done.stdout, done.stderr


def answer(url: str, accept: str) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=30) as got:
        return json.load(got)


def test_one_command_brings_a_release_to_a_registry(made: Path, tmp_path: Path) -> None:
    with registry(tmp_path) as host:
        to = f"{host}/team"
        status, told, said = publish(made, to, "--plain", "--signers", str(tmp_path / "signers"))
        assert status == 0, said
        assert told == (
            f"helm install antrea oci://{to}/charts/antrea --version {VERSION} --namespace kube-system"
            f" --set image.repository={to}/antrea --plain-http\n"
        )
        for name in ("antrea", "antrea-l7-engine"):
            index = answer(f"http://{to.replace('/team', '/v2/team')}/{name}/manifests/v{VERSION}", INDEX)
            assert [one["platform"]["architecture"] for one in index["manifests"]] == ["amd64", "arm64"]
            for one in index["manifests"]:
                place = f"http://{host}/v2/team/{name}"
                manifest = answer(f"{place}/manifests/{one['digest']}", one["mediaType"])
                config = answer(f"{place}/blobs/{manifest['config']['digest']}", "*/*")
                assert config["architecture"] == one["platform"]["architecture"]
        words = [str(artifacts.helm(print)), "pull", f"oci://{to}/charts/antrea", "--version", VERSION]
        pulled = tmp_path / "pulled"
        pulled.mkdir()
        subprocess.run([*words, "--plain-http", "--destination", str(pulled)], check=True, timeout=120)
        chart = f"antrea-{VERSION}.tgz"
        assert (pulled / chart).read_bytes() == (made / chart).read_bytes()


@pytest.fixture
def image_key(tmp_path: Path) -> Path:
    """A private key with a passphrase, which is in the file `passphrase` beside it; the public one has the suffix .pub."""
    made = tmp_path / "images.key"
    (tmp_path / "passphrase").write_text("of a test")
    encrypted = ("-aes256", "-pass", f"file:{tmp_path / 'passphrase'}", "-out", made)
    curve = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
    subprocess.run(["openssl", "genpkey", *curve, *encrypted], check=True, timeout=60)
    public = ("-passin", f"file:{tmp_path / 'passphrase'}", "-pubout", "-out", made.with_suffix(".pub"))
    subprocess.run(["openssl", "pkey", "-in", made, *public], check=True, timeout=60)
    return made


def signed(place: str, digest: str, key: Path) -> dict[str, Any]:
    """The text that was signed for an image of the registry, if the signature beside it is of this public key."""
    manifest = answer(f"{place}/manifests/{digest.replace(':', '-')}.sig", MANIFEST)
    (layer,) = manifest["layers"]
    assert layer["mediaType"] == "application/vnd.dev.cosign.simplesigning.v1+json"
    with urllib.request.urlopen(f"{place}/blobs/{layer['digest']}", timeout=30) as got:
        text = got.read()
    public = serialization.load_pem_public_key(key.read_bytes())
    assert isinstance(public, ec.EllipticCurvePublicKey)
    made = base64.b64decode(layer["annotations"]["dev.cosignproject.cosign/signature"])
    public.verify(made, text, ec.ECDSA(hashes.SHA256()))
    found: dict[str, Any] = json.loads(text)["critical"]
    return found


def test_published_images_are_signed_in_the_registry(made: Path, image_key: Path, tmp_path: Path) -> None:
    """The image of all architectures, and that of each; tools of others verify them in tests/lab/test_lab_release_whole.py."""
    words = ("--plain", "--image-key", str(image_key), "--image-passphrase", f"{tmp_path}/passphrase")
    with registry(tmp_path) as host:
        status, _, said = publish(made, f"{host}/team", *words)
        assert status == 0, said
        for name in ("antrea", "antrea-l7-engine"):
            image, place = f"{host}/team/{name}:v{VERSION}", f"http://{host}/v2/team/{name}"
            request = urllib.request.Request(f"{place}/manifests/v{VERSION}", headers={"Accept": INDEX})
            with urllib.request.urlopen(request, timeout=30) as got:
                index = got.read()
            digests = [f"sha256:{hashlib.sha256(index).hexdigest()}"]
            digests += [one["digest"] for one in json.loads(index)["manifests"]]
            assert len(digests) == 3
            for digest in digests:
                assert signed(place, digest, image_key.with_suffix(".pub")) == {
                    "identity": {"docker-reference": image},
                    "image": {"docker-manifest-digest": digest},
                    "type": "cosign container image signature",
                }


def test_a_key_that_is_not_there_is_named_before_anything_is_sent(made: Path) -> None:
    status, _, said = publish(made, "127.0.0.1:1/team", "--plain", "--image-key", "/nowhere/images.key")
    assert (status, "--image-key: there is no file /nowhere/images.key" in said) == (2, True), said


def test_a_changed_file_is_not_published(made: Path) -> None:
    with (made / f"antrea-v{VERSION}-arm64.tar").open("ab") as archive:
        archive.write(b"\0")
    status, _, said = publish(made, "127.0.0.1:1/team", "--plain")
    assert (status, f"antrea-v{VERSION}-arm64.tar: FAILED" in said) == (1, True), said


def test_a_release_that_another_signed_is_not_published(made: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True, timeout=60)
    release.sign(made, other)
    words = ("127.0.0.1:1/team", "--plain", "--signers", str(tmp_path / "signers"))
    status, _, said = publish(made, *words)
    assert (status, "the signature of" in said) == (1, True), said


def test_the_commands_of_the_page_verify_a_release(made: Path, tmp_path: Path) -> None:
    page = release.__doc__
    shutil.copy(tmp_path / "signers", made)
    commands = [
        line.strip()
        for line in page.splitlines()
        if line.strip().startswith(("sha256sum", "ssh-keygen -Y verify"))
    ]
    assert len(commands) == 2
    for command in commands:
        subprocess.run(["sh", "-c", command], cwd=made, check=True, timeout=60)
