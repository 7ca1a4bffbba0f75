"""Writes the CustomResourceDefinitions into the chart, one file each, and all of them into build/yamls/antrea-crds.yml.

Run by `make manifests`; Helm installs the chart's, the other file is for upgrades, which Helm does not do to CRDs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from antrea.apis.crds import CRDS, manifest  # noqa: E402

if TYPE_CHECKING:
    from antrea.apis.crds import Crd

FOLDER = ROOT / "build/charts/antrea/crds"
ALL = ROOT / "build/yamls/antrea-crds.yml"
HEAD = "# Generated from antrea/apis/crds.py by `make manifests`.\n"


class _Dumper(yaml.SafeDumper):
    """Writes what stands in several places in full at each."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def text(crd: Crd) -> str:
    """One definition as YAML."""
    told = yaml.dump(manifest(crd), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return HEAD + told


def generated() -> dict[Path, str]:
    """Every generated file with its text."""
    files = {FOLDER / crd.file: text(crd) for crd in CRDS}
    return {**files, ALL: "".join(f"---\n{files[file]}" for file in sorted(files))}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, content in generated().items():
        file.write_text(content)
