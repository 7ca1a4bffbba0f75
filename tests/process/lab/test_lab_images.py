"""Layers, images and archives: the same bytes from the same description, readable by containerd and Docker."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from image_build import oci, rootfs
from image_build.oci import Image, Layer
from image_build.rootfs import Tree

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTREA_LAB_CACHE", str(tmp_path / "cache"))


def layer_of(files: Mapping[str, bytes]) -> Layer:
    tree = Tree()
    for name, content in files.items():
        tree.file(name, content)
    return oci.layer(tree.key(), tree.write)


def members(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {info.name: file.read() for info in tar if (file := tar.extractfile(info))}


def archive_of(*images: Image, omit: frozenset[str] = frozenset()) -> bytes:
    out = io.BytesIO()
    oci.write(images, out, omit)
    return out.getvalue()


def test_a_layer_holds_what_was_described_owned_by_root_and_dated_zero(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("from disk")
    tree = Tree()
    tree.file("/usr/bin/tool", tmp_path / "source", 0o755)
    tree.folder("tmp", 0o1777)
    tree.link("bin", "usr/bin")
    out = io.BytesIO()
    tree.write(out)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as tar:
        assert [(i.name, i.type, oct(i.mode), i.linkname, i.uid, i.gid, i.mtime) for i in tar] == [
            ("bin", tarfile.SYMTYPE, "0o777", "usr/bin", 0, 0, 0),
            ("tmp", tarfile.DIRTYPE, "0o1777", "", 0, 0, 0),
            ("usr", tarfile.DIRTYPE, "0o755", "", 0, 0, 0),
            ("usr/bin", tarfile.DIRTYPE, "0o755", "", 0, 0, 0),
            ("usr/bin/tool", tarfile.REGTYPE, "0o755", "", 0, 0, 0),
        ]
    assert members(out.getvalue()) == {"usr/bin/tool": b"from disk"}


def test_a_changed_mode_or_content_is_another_layer() -> None:
    def key(content: bytes, mode: int) -> str:
        tree = Tree()
        tree.file("x", content, mode)
        return tree.key()

    assert key(b"1", 0o644) == key(b"1", 0o644)
    assert len({key(b"1", 0o644), key(b"2", 0o644), key(b"1", 0o755)}) == 3


def test_a_program_brings_the_libraries_that_its_loader_wants() -> None:
    tree = Tree()
    tree.program("usr/bin/ls", Path("/bin/ls"))
    wanted = {str(path).strip("/") for path in rootfs.libraries(Path("/bin/ls"))}
    assert any(name.endswith("/libc.so.6") for name in wanted)
    files = {name for name, entry in tree.entries.items() if entry.content is not None}
    assert files == {"usr/bin/ls", *wanted}


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("antrea/antrea-agent-ubuntu", "docker.io/antrea/antrea-agent-ubuntu:latest"),
        ("antrea/antrea-agent-ubuntu:v1", "docker.io/antrea/antrea-agent-ubuntu:v1"),
        ("localhost:5000/x", "localhost:5000/x:latest"),
        ("example.org/pause:3", "example.org/pause:3"),
    ],
)
def test_a_short_name_is_looked_up_in_full(name: str, full: str) -> None:
    assert oci.reference(name) == full


def test_an_archive_is_a_chain_of_matching_digests() -> None:
    image = Image(("a/one", "a/two:x"), (layer_of({"1": b"one"}), layer_of({"2": b"two"})), ("/1",), ("arg",))
    files = members(archive_of(image))
    for name, content in files.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"

    def blob(descriptor: Mapping[str, str]) -> bytes:
        content = files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
        assert len(content) == int(descriptor["size"])
        return content

    index = json.loads(files["index.json"])
    names = [entry["annotations"]["io.containerd.image.name"] for entry in index["manifests"]]
    assert names == ["docker.io/a/one:latest", "docker.io/a/two:x"]
    manifest = json.loads(blob(index["manifests"][0]))
    config = json.loads(blob(manifest["config"]))
    assert config["config"]["Entrypoint"] == ["/1"]
    assert config["config"]["Cmd"] == ["arg"]
    assert config["rootfs"]["diff_ids"] == [entry["digest"] for entry in manifest["layers"]]
    assert [members(blob(entry)) for entry in manifest["layers"]] == [{"1": b"one"}, {"2": b"two"}]
    docker = json.loads(files["manifest.json"])
    assert docker[0]["RepoTags"] == ["a/one", "a/two:x"]
    assert all(name in files for name in [docker[0]["Config"], *docker[0]["Layers"]])


def test_the_same_image_is_the_same_bytes_and_shared_layers_are_sent_once() -> None:
    shared, own = layer_of({"s": b"shared"}), layer_of({"o": b"own"})
    one, two = Image(("one",), (shared,)), Image(("two",), (shared, own))
    assert archive_of(one, two) == archive_of(one, two)
    with tarfile.open(fileobj=io.BytesIO(archive_of(one, two))) as tar:
        names = tar.getnames()
    assert len(names) == len(set(names))


def test_blobs_that_the_reader_has_are_left_out() -> None:
    image = Image(("one",), (layer_of({"1": b"one"}), layer_of({"2": b"two"})))
    kept = image.layers[0].digest
    whole, rest = members(archive_of(image)), members(archive_of(image, omit=frozenset({kept})))
    assert set(whole) - set(rest) == {f"blobs/sha256/{kept.removeprefix('sha256:')}"}


def test_a_saved_archive_appears_whole(tmp_path: Path) -> None:
    image = Image(("one",), (layer_of({"1": b"one"}),))
    oci.save([image], tmp_path / "one.tar")
    assert (tmp_path / "one.tar").read_bytes() == archive_of(image)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
