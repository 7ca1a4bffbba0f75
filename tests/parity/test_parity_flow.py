"""Our tables, fields, marks, zones and cookie categories are those that upstream's source declares ($ANTREA_SRC)."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from antrea.openflow import fields
from antrea.openflow.cookie import Category
from antrea.openflow.fields import FIELDS, MARKS, Zone
from antrea.openflow.group import MAX_BUCKETS
from antrea.openflow.priority import Priority
from antrea.openflow.table import Miss, PipelineId, Stage
from antrea.openflow.tables import TABLES

SOURCE = os.environ.get("ANTREA_SRC", "")
pytestmark = pytest.mark.skipif(not SOURCE, reason="ANTREA_SRC names no checkout of upstream")

# Upstream declares a bit that does not exist; what it writes to the switch are these seven.
EFFECTIVE = {"packetinoperationfield": ("reg0", 25, 31)}
# What upstream writes as plain numbers, or declares in other files.
OURS_ALONE = {
    "dispositionrejregmark",
    "packetinloggingregmark",
    "packetinrejectregmark",
    "packetinstoredenyregmark",
    "egressreturnpktmark",
    "hostlocalsourcepktmark",
    "servicerulespassedregmark",
    "notservicerulespassedregmark",
    "auditpassregmark",
    "egressauditedregmark",
    "notegressauditedregmark",
    "ingressauditedregmark",
    "notingressauditedregmark",
    "traceinjectedregmark",
    "nottraceinjectedregmark",
}


def source(path: str) -> str:
    return (Path(SOURCE) / "pkg" / path).read_text(encoding="utf-8")


def squeezed(name: str) -> str:
    return name.replace("_", "").lower()


def number(text: str, constants: dict[str, int]) -> int:
    return constants[text] if text in constants else int(text, 0)


def go_constants() -> dict[str, int]:
    text = source("agent/openflow/fields.go") + source("agent/openflow/pipeline.go")
    found = re.findall(r"^\s+(\w+)\s+=\s+(?:uint32\()?(0[xb][0-9a-f]+|\d+)\)?$", text, re.MULTILINE)
    return {name: int(value, 0) for name, value in found}


def test_tables_stand_in_upstreams_order_pipeline_and_stage() -> None:
    pattern = r"^\t\w+\s+= newTable\(\"(\w+)\", stage(\w+), pipeline(\w+)(, defaultDrop)?\)"
    declared = re.findall(pattern, source("agent/openflow/pipeline.go"), re.MULTILINE)
    assert len(declared) == 47
    ours = [
        (table.name, squeezed(table.stage.name), squeezed(table.pipeline.name), table.miss is Miss.DROP)
        for table in TABLES
    ]
    theirs = [(name, stage.lower(), pipeline.lower(), bool(drop)) for name, stage, pipeline, drop in declared]
    assert ours == theirs


def test_pipelines_and_stages_are_upstreams_in_its_order() -> None:
    text = source("agent/openflow/framework.go")
    stages = re.findall(r"^\tstage(\w+)(?: binding\.StageID = iota)?$", text, re.MULTILINE)
    pipelines = re.findall(r"^\tpipeline(\w+)(?: binding\.PipelineID = iota)?$", text, re.MULTILINE)
    assert [squeezed(stage.name) for stage in Stage] == [name.lower() for name in stages]
    assert [squeezed(each.name) for each in PipelineId] == [name.lower() for name in pipelines]


def test_fields_have_upstreams_bits() -> None:
    text = source("agent/openflow/fields.go")
    theirs: dict[str, tuple[str, int, int]] = {}
    for name, kind, args in re.findall(r"^\t(\w+)\s+= binding\.New(\w+)\(([^)]*)\)", text, re.MULTILINE):
        parts = [int(part) for part in args.split(",")] if re.fullmatch(r"[\d, ]+", args) else []
        if kind in ("RegField", "XXRegField"):
            register = f"{'xx' if kind == 'XXRegField' else ''}reg{parts[0]}"
            theirs[name.lower()] = (register, parts[1], parts[2])
        elif kind in ("CTMarkField", "CTLabel"):
            theirs[name.lower()] = ("ct_mark" if kind == "CTMarkField" else "ct_label", parts[0], parts[1])
    ours = {field.name.lower(): (field.register, field.lo, field.hi) for field in FIELDS}
    missing = {
        name: bits
        for name, bits in {**theirs, **EFFECTIVE}.items()
        if bits not in (ours.get(name), ours.get(name.removesuffix("field")))
    }
    assert len(theirs) >= 25
    assert missing == {}


def declared_marks() -> dict[str, tuple[str, int, int]]:
    """Mark -> register, value in place, mask."""
    text = source("agent/openflow/fields.go")
    constants = {**go_constants(), "DispositionAllow": 0}
    bits = {field.name.lower(): field for field in FIELDS}
    found = {}
    for name, kind, args in re.findall(r"^\t(\w+)\s+= binding\.New(\w*Mark)\((.*)\)$", text, re.MULTILINE):
        parts = [part.strip() for part in args.split(",")]
        if kind.startswith("OneBit"):
            bit = 1 << int(parts[-1])
            register = "ct_mark" if "CT" in kind else f"reg{parts[0]}"
            found[name.lower()] = (register, 0 if "Zero" in kind else bit, bit)
        else:
            key = parts[0].lower()
            field = bits.get(key.removesuffix("field")) or bits[key]
            found[name.lower()] = (field.register, number(parts[1], constants) << field.lo, field.mask)
    return found


def test_marks_have_upstreams_values() -> None:
    theirs = declared_marks()
    ours = {
        squeezed(name): (mark.field.register, mark.value << mark.field.lo, mark.field.mask)
        for name, mark in MARKS.items()
    }
    assert len(theirs) >= 40
    assert {name: value for name, value in ours.items() if name not in OURS_ALONE} == theirs


def test_zones_priorities_and_addresses_are_upstreams() -> None:
    constants = go_constants()
    assert {squeezed(zone.name): int(zone) for zone in Zone} == {
        name.lower(): constants[name] for name in ("CtZone", "CtZoneV6", "SNATCtZone", "SNATCtZoneV6")
    }
    found = re.findall(
        r"^\tpriority(\w+)\s+= uint16\((\d+)\)", source("agent/openflow/pipeline.go"), re.MULTILINE
    )
    assert {squeezed(each.name): int(each) for each in Priority} == {n.lower(): int(v) for n, v in found}
    assert f'GlobalVirtualMAC, _ = net.ParseMAC("{fields.GLOBAL_VIRTUAL_MAC}")' in source(
        "agent/openflow/pipeline.go"
    )
    assert f'"{fields.GLOBAL_VIRTUAL_MAC_FOR_MULTICLUSTER}"' in source("agent/openflow/multicluster.go")
    assert f"MaxBucketsPerMessage = {MAX_BUCKETS}" in source("ovs/openflow/ofctrl_group.go")


def test_cookie_categories_are_upstreams() -> None:
    text = source("agent/openflow/cookie/allocator.go")
    declared = re.findall(
        r"^\t(\w+)(?: Category = iota)?$", text.partition("type Category")[2].partition(")")[0], re.MULTILINE
    )
    assert [squeezed(category.name) for category in Category] == [name.lower() for name in declared]
    assert list(Category) == list(range(len(declared)))
