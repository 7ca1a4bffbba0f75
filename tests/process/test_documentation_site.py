"""The documentation as a site: it builds without a broken link, has every page, and loads nothing from another host."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = (ROOT / "mkdocs.yml").read_text()
LOADED = re.compile(r'<(?:script|img|iframe|link(?![^>]*rel="?canonical))[^>]*(?:src|href)="?(https?:)?//')
"""A tag that has the browser load something from another host; links that a reader follows are not among them."""


def build(config: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of `config` into `folder`/site."""
    file = folder / "mkdocs.yml"
    file.write_text(config.replace("site_dir: build/out/site", "site_dir: site"))
    return subprocess.run(
        ["zensical", "build", "--strict", "--config-file", file],
        capture_output=True, text=True, timeout=60, check=False, cwd=folder,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    done = build(CONFIG, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_the_site_has_every_page_in_its_navigation(site: Path) -> None:
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages == set(re.findall(r"[\w/-]+\.md", CONFIG.partition("\nnav:")[2]))
    built = {str(page.relative_to(site).with_suffix(".md")) for page in site.rglob("*.html")}
    assert pages - built == {"README.md"}  # index.html


def test_the_search_of_the_site_finds_every_page_without_a_network(site: Path) -> None:
    found = {
        item["location"].partition("#")[0] for item in json.loads((site / "search.json").read_text())["items"]
    }
    assert {str(page.relative_to(site)) for page in site.rglob("*.html")} - found == {"404.html"}


def test_the_site_loads_nothing_from_another_host(site: Path) -> None:
    assert LOADED.search('<script src="https://cdn.example.com/a.js">')
    assert [str(page) for page in site.rglob("*.html") if LOADED.search(page.read_text())] == []


@pytest.mark.parametrize("link", ["missing.md", "egress.md#no-such-section"])
def test_a_broken_link_fails_the_build_of_the_site(tmp_path: Path, link: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/README.md").write_text(f"# Documentation\n\nSee [this]({link}).\n")
    (tmp_path / "docs/egress.md").write_text("# Egress\n")
    config = CONFIG.partition("\nnav:")[0] + "\nnav: [README.md, egress.md]\n"
    done = build(config, tmp_path)
    assert (done.returncode != 0, "does not exist" in done.stdout + done.stderr) == (True, True), done.stdout
