"""docs/release.md in one run: a whole signed release of a clean clone is verified, published, signed in the registry, installed in a lab, and built again with equal digests."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import figure
import pytest
from image_signature import new_key, why_refused
from loopback_registry import registry
from published_release import PORT, images, installed

from antrea import VERSION
from lab import artifacts

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/release.md").read_text()
EMULATOR = "qemu-aarch64-static"
IMAGES = ("antrea", "antrea-flow-aggregator", "antrea-l7-engine", "antrea-bgp-engine")
ARCHITECTURES = ("amd64", "arm64")
CHARACTERISTIC = {
    "antrea": "openvswitch-switch",
    "antrea-flow-aggregator": "chdb-core",
    "antrea-l7-engine": "suricata",
    "antrea-bgp-engine": "frr",
}
"""A package of each image that its bill of materials has to have."""
SUMS = "SHA256SUMS"
pytestmark = [
    pytest.mark.wide,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(os.geteuid() != 0, reason="an image needs root"),
    pytest.mark.skipif(not shutil.which(EMULATOR), reason="needs apt-get install qemu-user-static"),
]


class Release(NamedTuple):
    """A release that was built in a clone."""

    tree: Path
    folder: Path


def clone(to: Path) -> Path:
    """A clean tree of the commit that is checked out here."""
    subprocess.run(["git", "clone", "-q", ROOT, to], check=True, timeout=120)
    return to


def made(tree: Path, words: list[str], name: str, **more: str) -> Release:
    """What a command builds in a clone; prints how long it took. `more` are variables of its environment."""
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **more}
    started = time.monotonic()
    subprocess.run(words, cwd=tree, env={**os.environ, **own}, check=True, stdout=subprocess.DEVNULL)
    figure.show(f"release_{name}", "s", [time.monotonic() - started])
    return Release(tree, tree / f"build/out/release/v{VERSION}")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the key `release` of ssh-keygen, its `signers`, and the key `images` of the registry's signatures."""
    folder = tmp_path_factory.mktemp("keys")
    key = folder / "release"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=60)
    (folder / "signers").write_text(f"release {key.with_suffix('.pub').read_text()}")
    new_key(folder, "images")
    return folder


@pytest.fixture(scope="module")
def release(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """By the command of the page."""
    tree = clone(tmp_path_factory.mktemp("first") / "tree")
    built = made(tree, ["make", "release", f"KEY={keys / 'release'}"], "build")
    for file in sorted(built.folder.iterdir()):
        if file.suffix in (".tar", ".tgz", ".whl") or file.name == "antctl":
            figure.show(f"release_{file.name.replace('-', '_')}", "MB", [file.stat().st_size / 1e6])
    return built


def section(title: str) -> list[str]:
    """Commands of a section of the page."""
    text = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


def test_the_release_has_all_files_of_the_page_and_they_verify(release: Release, keys: Path) -> None:
    wanted = {
        f"{name}-v{VERSION}-{architecture}{suffix}"
        for name in IMAGES
        for architecture in ARCHITECTURES
        for suffix in (".tar", ".cdx.json")
    }
    wanted |= {path.name for path in (ROOT / "build/yamls").glob("*.yml")}
    wanted |= {"antctl", f"antrea-{VERSION}.tgz", f"antrea-{VERSION}-py3-none-any.whl", "release.json"}
    assert {path.name for path in release.folder.iterdir()} == wanted | {SUMS, f"{SUMS}.sig"}
    summed = {line.split()[1] for line in (release.folder / SUMS).read_text().splitlines()}
    assert summed == wanted
    commands = [line for line in section("Verify") if line.startswith(("sha256sum", "ssh-keygen"))]
    assert len(commands) == 2
    shutil.copy(keys / "signers", release.folder.parent)
    for command in commands:
        there = command.replace("-f signers", "-f ../signers")
        subprocess.run(["sh", "-c", there], cwd=release.folder, check=True, timeout=300)


def test_antctl_of_the_release_runs_without_a_network_and_other_packages(
    release: Release, tmp_path: Path
) -> None:
    alone = ["unshare", "--net", "python3", "-I", str(release.folder / "antctl"), "--help"]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        alone, check=True, stdout=subprocess.PIPE, text=True, cwd="/", env=environment, timeout=60
    )
    assert "doctor" in done.stdout


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", IMAGES)
def test_an_archive_is_of_its_architecture_and_its_bill_names_what_is_in_it(
    release: Release, name: str, architecture: str
) -> None:
    stem = f"{name}-v{VERSION}-{architecture}"
    with tarfile.open(release.folder / f"{stem}.tar") as tar:

        def content(path: str) -> bytes:
            file = tar.extractfile(path)
            assert file is not None
            return file.read()

        (docker,) = json.loads(content("manifest.json"))
        config = json.loads(content(docker["Config"]))
    assert config["architecture"] == architecture
    bill = json.loads((release.folder / f"{stem}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert CHARACTERISTIC[name] in {part["name"] for part in bill["components"]}
    # packages of `all` are of no architecture
    debian = {part["purl"] for part in bill["components"] if part["purl"].startswith("pkg:deb/")}
    assert any(f"arch={architecture}&" in purl for purl in debian)
    (other,) = set(ARCHITECTURES) - {architecture}
    assert not any(f"arch={other}&" in purl for purl in debian)


@pytest.fixture(scope="module")
def published(
    release: Release, keys: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str, Path]]:
    """The address of a registry that has the release, what publish printed, and the registry's storage."""
    folder = tmp_path_factory.mktemp("registry")
    options = f"--plain --signers {keys}/signers --image-key {keys}/images.key"
    with registry(folder) as host:
        words = ["make", "-s", "publish", f"TO={host}/team", f"PUBLISH_OPTIONS={options}"]
        path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        started = time.monotonic()
        done = subprocess.run(
            words, cwd=release.tree, env={**os.environ, **path}, check=True, stdout=subprocess.PIPE, text=True
        )
        figure.show("release_publish", "s", [time.monotonic() - started])
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        figure.show("release_in_registry", "MB", [size / 1e6])
        yield host, done.stdout, folder / "storage"


@pytest.mark.parametrize("name", IMAGES)
def test_tools_that_verify_signatures_take_the_images_of_this_key_alone(
    published: tuple[str, str, Path], keys: Path, tmp_path: Path, name: str
) -> None:
    host, _, _ = published
    new_key(tmp_path, "other")
    image = f"{host}/team/{name}:v{VERSION}"
    for architecture in ARCHITECTURES:
        assert why_refused(image, keys / "images.pub", architecture) == ""
        assert "signature verification failed" in why_refused(image, tmp_path / "other.pub", architecture)


def test_the_published_release_is_installed_from_its_registry(
    published: tuple[str, str, Path], tmp_path: Path
) -> None:
    host, told, storage = published
    last = told.strip().splitlines()[-1]
    assert shlex.split(last)[:2] == ["helm", "install"]
    with installed(last.replace(host, f"localhost:{PORT}"), storage, tmp_path) as lab:
        assert images(lab) == {f"localhost:{PORT}/team/antrea"}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_second_build_in_another_place_without_caches_has_equal_digests(
    release: Release, tmp_path: Path, architecture: str
) -> None:
    """Packages of Debian are those of the day, so that a failure names the packages that differ first."""
    helm = str(artifacts.helm(print))
    tree = clone(tmp_path / "at another place" / "tree")
    words = [
        sys.executable,
        "build/release.py",
        "--unsigned",
        "--helm",
        helm,
        "--architectures",
        architecture,
    ]
    name = f"build_{architecture}_without_caches"
    again = made(tree, words, name, ANTREA_LAB_CACHE=str(tmp_path / "cache"))
    bills = sorted(again.folder.glob("*.cdx.json"))
    assert len(bills) == len(IMAGES)
    for bill in bills:
        assert packages(bill) == packages(release.folder / bill.name)
    second, first = digests(again.folder), digests(release.folder)
    assert second == {name: first[name] for name in second}
    of_others = {
        name
        for name in first
        if any(f"-{other}." in name for other in ARCHITECTURES if other != architecture)
    }
    assert first.keys() - second.keys() == of_others


def packages(bill: Path) -> list[str]:
    return [part["purl"] for part in json.loads(bill.read_text())["components"]]


def digests(folder: Path) -> dict[str, object]:
    """The digest of each file but those that name all images; of an archive also its entries, to see which layer differs."""
    found: dict[str, object] = {}
    for file in sorted(folder.iterdir()):
        if file.name.startswith((SUMS, "release.json")):
            continue
        with file.open("rb") as content:
            found[file.name] = hashlib.file_digest(content, "sha256").hexdigest()
        if file.suffix == ".tar":
            with tarfile.open(file) as tar:
                found[f"{file.name}: entries"] = tar.getnames()
    return found
