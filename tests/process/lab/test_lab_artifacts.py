"""Where the lab's programs come from: a folder, a verified mirror, Go; and the cache under all of it."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from antrea.errors import Invalid, Unavailable
from image_build import cache
from lab import artifacts, go_build, kube_source
from lab.go_build import GoModule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = [*artifacts.KUBERNETES.packages, *artifacts.COREDNS.packages]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANTREA_LAB_CACHE", str(tmp_path / "cache"))
    for name in (kube_source.FOLDER, kube_source.MIRROR):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


class Mirror:
    """A release mirror on loopback; `files` maps a path to its content, or to a status code."""

    def __init__(self) -> None:
        self.files: dict[str, bytes | int] = {}
        self.asked: list[str] = []
        mirror = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror.asked.append(self.path)
                content = mirror.files.get(self.path, 404)
                self.send_response(content if isinstance(content, int) else 200)
                self.end_headers()
                self.wfile.write(b"" if isinstance(content, int) else content)

            def log_message(self, *_: object) -> None:
                """Tests stay quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server.server_port}/release"

    def publish(self, name: str, content: bytes, checksum: str | None = None) -> None:
        place = f"/release/v1.34.1/bin/linux/amd64/{name}"
        self.files[place] = content
        self.files[f"{place}.sha256"] = (checksum or hashlib.sha256(content).hexdigest()).encode()


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    mirror = Mirror()
    monkeypatch.setenv(kube_source.MIRROR, mirror.url)
    serving = threading.Thread(target=mirror.server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    yield mirror
    mirror.server.shutdown()
    serving.join()
    mirror.server.server_close()


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_folder_of_programs_is_taken_before_anything_else(
    tmp_path: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {name: program(tmp_path / "kube" / name) for name in NAMES}
    monkeypatch.setenv(kube_source.FOLDER, str(tmp_path / "kube"))
    found = artifacts.binaries(lambda _: None)
    assert {name: getattr(found, name.replace("-", "_")) for name in NAMES} == paths
    assert os.access(found.etcd, os.X_OK)
    assert mirror.asked == []


def test_a_program_that_the_folder_lacks_comes_from_the_mirror(
    tmp_path: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        if name != "kubelet":
            program(tmp_path / "kube" / name)
    mirror.publish("kubelet", b"the kubelet")
    monkeypatch.setenv(kube_source.FOLDER, str(tmp_path / "kube"))
    found = artifacts.binaries(lambda _: None)
    assert found.kubelet.read_bytes() == b"the kubelet"
    assert os.access(found.kubelet, os.X_OK)
    assert found.kubectl == tmp_path / "kube/kubectl"


def test_a_folder_setting_that_names_no_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kube_source.FOLDER, "/no/such/folder")
    with pytest.raises(Invalid, match=r"ANTREA_LAB_KUBE_BIN: /no/such/folder is not a folder"):
        artifacts.binaries(lambda _: None)


def test_a_mirrored_program_is_downloaded_once(mirror: Mirror) -> None:
    mirror.publish("kubelet", b"the kubelet")
    place = "/release/v1.34.1/bin/linux/amd64/kubelet"
    for _ in range(2):
        found = kube_source.from_mirror("v1.34.1", ["kubelet", "agnhost"], lambda _: None)
        assert {name: path.read_bytes() for name, path in found.items()} == {"kubelet": b"the kubelet"}
    missing = place.replace("kubelet", "agnhost")
    assert mirror.asked == [
        f"{place}.sha256",
        place,
        f"{missing}.sha256",
        f"{place}.sha256",
        f"{missing}.sha256",
    ]


def test_a_wrong_checksum_is_refused_and_nothing_is_kept(mirror: Mirror, own_cache: Path) -> None:
    mirror.publish("kubelet", b"not the kubelet", hashlib.sha256(b"the kubelet").hexdigest())
    with pytest.raises(
        Invalid, match=r"kubelet has the sha256 [0-9a-f]{64}, its \.sha256 file says [0-9a-f]{64}"
    ):
        kube_source.from_mirror("v1.34.1", ["kubelet"], lambda _: None)
    assert [p for p in own_cache.rglob("*") if p.is_file() and not p.name.endswith(".lock")] == []


def test_a_checksum_file_without_a_checksum_is_refused(mirror: Mirror) -> None:
    mirror.publish("kubelet", b"the kubelet", "<html>please log in</html>")
    with pytest.raises(Invalid, match=r"kubelet\.sha256 holds no sha256"):
        kube_source.from_mirror("v1.34.1", ["kubelet"], lambda _: None)


def test_a_mirror_in_trouble_is_named_with_its_answer(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.files["/release/v1.34.1/bin/linux/amd64/kubelet.sha256"] = 503
    with pytest.raises(Unavailable, match=r"ANTREA_LAB_KUBE_URL answered 503 for http://127\.0\.0\.1"):
        kube_source.from_mirror("v1.34.1", ["kubelet"], lambda _: None)
    monkeypatch.setenv(kube_source.MIRROR, "http://127.0.0.1:1")
    with pytest.raises(Unavailable, match=r"ANTREA_LAB_KUBE_URL does not answer"):
        kube_source.from_mirror("v1.34.1", ["kubelet"], lambda _: None)
    monkeypatch.setenv(kube_source.MIRROR, "file:///etc")
    with pytest.raises(Invalid, match=r"not the http\(s\) address of a release mirror"):
        kube_source.from_mirror("v1.34.1", ["kubelet"], lambda _: None)


GO = """#!/bin/sh
if [ "$1" = env ]; then echo go{version}; exit 0; fi
if [ "$1" = list ]; then echo example.org/x/one; exit 0; fi
echo "$@" >> {log}
echo "$CGO_ENABLED|$GOFLAGS|$GOTOOLCHAIN|$GOSUMDB|$PWD" >> {log}
while [ "$1" != -o ]; do shift; done
echo built > "$2/one"; echo built > "$2/two"
"""


@pytest.fixture
def module(tmp_path: Path) -> GoModule:
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "go.mod").write_text("module x\n")
    (folder / "go.sum").write_text("sums\n")
    return GoModule(folder, "v1", {"one": "example.org/x/one", "two": "example.org/x/two"}, "-s")


def test_go_builds_all_missing_programs_at_once_and_only_once(
    module: GoModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    program(tmp_path / "bin/go", GO.format(version="1.24.0", log=log))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("GOFLAGS", "-mod=mod")
    lines: list[str] = []
    for _ in range(2):
        built = go_build.build(module, ["one", "two"], lines.append)
        assert {name: path.read_text() for name, path in built.items()} == {
            "one": "built\n",
            "two": "built\n",
        }
    command, settings = log.read_text().splitlines()
    assert command.startswith("build -v -trimpath -ldflags -s -o ")
    assert command.endswith("/ example.org/x/one example.org/x/two")
    assert settings == f"0|-buildvcs=false -mod=readonly|local|off|{module.folder}"
    assert lines[0] == "build src v1 with Go (minutes, once) ..."
    assert lines[1].startswith("build src v1 with Go (minutes, once): done in ")


def test_a_changed_sum_file_means_another_build(module: GoModule) -> None:
    before = module.key()
    (module.folder / "go.sum").write_text("other sums\n")
    assert module.key() != before


def test_a_machine_without_go_and_without_registry_is_told_what_to_do(
    module: GoModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin/go", GO.format(version="1.19.8", log=tmp_path / "log"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(
        Unavailable, match=r"no Go toolchain: install Go 1\.24 or newer .* or set ANTREA_LAB_KUBE_BIN"
    ):
        go_build.build(module, ["one"], lambda _: None)


def test_the_committed_modules_pin_the_versions_that_the_lab_names() -> None:
    kubernetes = (artifacts.KUBERNETES.folder / "go.mod").read_text()
    assert f"require k8s.io/kubernetes {artifacts.KUBERNETES_VERSION}\n" in kubernetes
    assert f"k8s.io/kubelet => k8s.io/kubelet v0.{artifacts.KUBERNETES_VERSION[3:]}\n" in kubernetes
    coredns = (artifacts.COREDNS.folder / "go.mod").read_text()
    assert f"github.com/coredns/coredns {artifacts.COREDNS_VERSION} " in coredns


def test_what_failed_or_was_killed_half_way_is_never_seen(own_cache: Path) -> None:
    def fail(part: Path) -> None:
        (part / "half").touch()
        raise RuntimeError("full disk")

    with pytest.raises(RuntimeError, match="full disk"):
        cache.made("kind", "key", fail)
    killed = own_cache / "kind/.key.part-0"
    killed.mkdir()
    place = cache.made("kind", "key", lambda part: (part / "whole").touch())
    assert [p.name for p in place.iterdir()] == ["whole"]
    assert sorted(p.name for p in place.parent.iterdir()) == [".key.lock", "key"]


def test_two_that_want_the_same_make_it_once() -> None:
    made: list[Path] = []
    both = threading.Barrier(2)

    def make(part: Path) -> None:
        made.append(part)
        (part / "it").touch()

    def want() -> None:
        both.wait()
        assert (cache.made("kind", "key", make) / "it").exists()

    threads = [threading.Thread(target=want) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_the_least_recently_used_go_first_and_recent_ones_stay(own_cache: Path) -> None:
    for name, age in (("old", 9000.0), ("older", 9999.0), ("new", 10.0), ("newest", 1.0)):
        place = cache.made("kind", name, lambda part: None)
        os.utime(place, (time.time() - age, time.time() - age))
    assert cache.keep("kind", 1) == [own_cache / "kind/old", own_cache / "kind/older"]
    assert sorted(p.name for p in (own_cache / "kind").iterdir() if p.is_dir()) == ["new", "newest"]


def test_the_cache_is_where_its_setting_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache.folder() == tmp_path / "cache"
    monkeypatch.delenv("ANTREA_LAB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.folder() == tmp_path / "xdg/antrea-lab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / ".cache/antrea-lab"
