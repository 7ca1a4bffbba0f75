"""The files of the web page: libraries as their publishers have them, and no way from a value to markup."""

import hashlib
import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import antrea

ROOT = Path(antrea.__file__).parents[1]
UI = ROOT / "antrea/flow_aggregator/ui"
VENDOR = UI / "vendor"
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser"
    r"|javascript:|createContextualFragment"
)
INLINE = re.compile(r"<script(?![^>]*\bsrc=)|<style|\son\w+\s*=|\sstyle\s*=|https?://|//[\w-]+\.[a-z]")
OWN = sorted(path for path in UI.iterdir() if path.suffix in (".js", ".html"))


def test_libraries_are_those_of_the_manifest_byte_by_byte() -> None:
    listed = json.loads((VENDOR / "manifest.json").read_text())
    hashes = {one["file"]: one["sha256"] for one in listed}
    files = {path for path in VENDOR.iterdir() if path.suffix in (".js", ".css")}
    assert hashes == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", one["version"]) for one in listed)
    assert sum(path.stat().st_size for path in files) < 100_000
    licences = (VENDOR / "LICENSES.txt").read_text()
    assert {one["package"] for one in listed} <= set(re.findall(r"[\w-]+", licences))


def test_no_value_of_a_record_can_become_markup_or_code() -> None:
    assert len(OWN) > 5
    found = {path.name: MARKUP.findall(path.read_text()) for path in OWN}
    assert {name: words for name, words in found.items() if words} == {}


def test_the_page_has_no_script_and_no_style_of_its_own_and_refers_to_no_other_server() -> None:
    assert INLINE.findall((UI / "index.html").read_text()) == []
    named = re.findall(r'(?:src|href)="([^"]+)"', (UI / "index.html").read_text())
    assert [name for name in named if not (UI / name).is_file()] == []


def test_every_import_of_a_script_is_a_file_of_the_page() -> None:
    for path in OWN:
        for name in re.findall(r'from "([^"]+)"', path.read_text()):
            assert (path.parent / name).is_file(), f"{path.name}: {name}"


def test_the_wheel_has_every_file_of_the_page() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    patterns = data["antrea.flow_aggregator"]
    names = [str(path.relative_to(UI.parent)) for path in UI.rglob("*") if path.is_file()]
    assert [name for name in names if not any(fnmatch(name, one) for one in patterns)] == []
