"""Container images as values, and as archives that `ctr images import` and `docker load` read."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from image_build import cache

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from image_build.rootfs import Tree

CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
EPOCH = "1970-01-01T00:00:00Z"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Layer(msgspec.Struct, frozen=True):
    """An uncompressed tar in the cache; `digest` is `sha256:` and its hash, `size` its bytes."""

    path: Path
    digest: str
    size: int


class Blob(msgspec.Struct, frozen=True):
    """Content under `blobs/sha256` of an archive: a text, or the file of a layer."""

    digest: str
    size: int
    content: bytes | Path


class Image(msgspec.Struct, frozen=True):
    """Names (as people write them) that all mean this one image: layers from the lowest, and how it starts."""

    names: tuple[str, ...]
    layers: tuple[Layer, ...]
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: tuple[str, ...] = (PATH,)
    architecture: str = "amd64"

    @property
    def references(self) -> tuple[str, ...]:
        """The names as containerd and kubelet look them up."""
        return tuple(reference(name) for name in self.names)

    @property
    def config(self) -> Blob:
        """The image configuration (OCI image-spec v1.0, config.md)."""
        return _text(
            {
                "architecture": self.architecture,
                "os": "linux",
                "created": EPOCH,
                "config": {
                    "Entrypoint": self.entrypoint,
                    "Cmd": self.cmd,
                    "Env": self.env,
                    "WorkingDir": "/",
                },
                "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in self.layers]},
            }
        )

    @property
    def manifest(self) -> Blob:
        """The image manifest (OCI image-spec v1.0, manifest.md); its digest stands for the whole image."""
        return _text(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": _descriptor(CONFIG, self.config),
                "layers": [_descriptor(LAYER, layer) for layer in self.layers],
            }
        )


def reference(name: str) -> str:
    """A short name in full: `antrea/x` is `docker.io/antrea/x:latest` (distribution/reference, normalize.go)."""
    domain, slash, rest = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif "." not in domain and ":" not in domain and domain != "localhost":
        name = f"docker.io/{name}"
    else:
        name = f"{domain}/{rest}"
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def layer(key: str, write: Callable[[IO[bytes]], None]) -> Layer:
    """The layer of that cache key; `write` makes its tar if it is not there yet."""

    def make(part: Path) -> None:
        with (part / "layer.tar").open("wb+") as tar:
            write(tar)
            tar.seek(0)
            digest = hashlib.file_digest(tar, "sha256").hexdigest()
        (part / "digest").write_text(f"sha256:{digest}")

    place = cache.made("layers", key, make)
    tar = place / "layer.tar"
    return Layer(tar, (place / "digest").read_text(), tar.stat().st_size)


def one_layer(name: str, tree: Tree, entrypoint: tuple[str, ...], cmd: tuple[str, ...] = ()) -> Image:
    """The image of that name with these files alone."""
    return Image((name,), (layer(tree.key(), tree.write),), entrypoint, cmd)


def write(images: Sequence[Image], out: IO[bytes], omit: Collection[str] = ()) -> None:
    """One OCI archive of the images (with the manifest.json that older `docker load` wants), as a stream.

    Blobs whose digest is in `omit` are left out: the reader has them already.
    """
    blobs = {blob.digest: blob for image in images for blob in _blobs(image)}
    manifests = [
        {
            **_descriptor(MANIFEST, image.manifest),
            "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name},
        }
        for image in images
        for name in image.references
    ]
    docker = [
        {
            "Config": _place(image.config.digest),
            "RepoTags": image.names,
            "Layers": [_place(layer.digest) for layer in image.layers],
        }
        for image in images
    ]
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as tar:
        _add(tar, "oci-layout", msgspec.json.encode({"imageLayoutVersion": "1.0.0"}))
        for digest, blob in sorted(blobs.items()):
            if digest not in omit:
                _add(tar, _place(digest), blob.content)
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
        _add(tar, "index.json", msgspec.json.encode(index))
        _add(tar, "manifest.json", msgspec.json.encode(docker))


def save(images: Sequence[Image], to: Path) -> None:
    """The archive as a file, replaced in one step."""
    part = to.with_name(f".{to.name}.part")
    with part.open("wb") as out:
        write(images, out)
    shutil.move(part, to)


def _blobs(image: Image) -> list[Blob]:
    layers = [Blob(layer.digest, layer.size, layer.path) for layer in image.layers]
    return [image.config, image.manifest, *layers]


def _descriptor(kind: str, of: Blob | Layer) -> dict[str, Any]:
    return {"mediaType": kind, "digest": of.digest, "size": of.size}


def _text(value: Any) -> Blob:
    content = msgspec.json.encode(value)
    return Blob(f"sha256:{hashlib.sha256(content).hexdigest()}", len(content), content)


def _place(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _add(tar: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    info = tarfile.TarInfo(name)
    info.mode = 0o644
    if isinstance(content, bytes):
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    else:
        info.size = content.stat().st_size
        with content.open("rb") as file:
            tar.addfile(info, file)


def encode(image: Image) -> str:
    """An image as JSON: its layers stay where they are, in the cache."""
    return msgspec.json.encode(image, enc_hook=str).decode()


def decode(text: str) -> Image:
    """The image that `encode` wrote."""
    return msgspec.json.decode(text, type=Image, dec_hook=lambda kind, value: kind(value))
