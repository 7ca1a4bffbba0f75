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
NO_MARKS_THERE = {
    "dispositionrejregmark",
    "packetinloggingregmark",
    "packetinrejectregmark",
    "packetinstoredenyregmark",
    "egressreturnpktmark",
    "hostlocalsourcepktmark",
}
ADDED_MARKS = {
    "servicerulespassedregmark": "a pass by a rule on Services leaves only those of the baseline tier",
    "notservicerulespassedregmark": "the same",
    "auditpassregmark": "audited policies judge a copy of the packet; upstream audits none",
    "egressauditedregmark": "the same",
    "notegressauditedregmark": "the same",
    "ingressauditedregmark": "the same",
    "notingressauditedregmark": "the same",
    "traceinjectedregmark": "packets of Pods that carry the tag of a Traceflow lose it; the agent's own keep it",
    "nottraceinjectedregmark": "the same",
    "dropreportedregmark": "a PacketCapture has dropped packets again, each once and with the reason; upstream's shows no drops",
    "dropnottoldregmark": "the same",
    "packetincaptureregmark": "the same",
    "packetindnsmeteredregmark": "answers to one Pod have a meter of their own before that of all, which upstream lacks",
    "packetindnscopyregmark": "audited rules on domain names read answers that go on without a wait",
    "l7npegressctlabel": "which of an egress and an ingress L7 rule inspect a connection; upstream has one VLAN for both",
    "notl7npegressctlabel": "the same",
    "l7npingressctlabel": "the same",
    "notl7npingressctlabel": "the same",
    "trafficcontroll7exportregmark": "copies for L7FlowExporter are of both directions; upstream mirrors half of a connection",
    "pickedupctmark": "records keep the direction of connections that tracking has lost; upstream's are reversed",
    "eprememberedregmark": "what a client has learned is looked up among the Endpoints of its Service; upstream asks those of all",
    "rememberedremoteregmark": "with direct server return, a choice of an Endpoint elsewhere is looked up, too",
    "notrememberedremoteregmark": "the same",
    "nothairpinctmark": "of these, connections of a Pod to itself are left out",
}
"""Marks that upstream has not, and why."""
ADDED_PRIORITIES = {
    "dnscopy": "audited rules on domain names copy answers above what holds those of enforced ones",
    "dnsmetered": "answers that have passed their Pod's meter come to that of all",
}
"""Priorities that upstream has not, and why."""


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


def declared_fields() -> dict[str, tuple[str, int, int]]:
    """Field -> register, first bit, last bit."""
    text = source("agent/openflow/fields.go")
    theirs: dict[str, tuple[str, int, int]] = {}
    for name, kind, args in re.findall(r"^\t(\w+)\s+= binding\.New(\w+)\(([^)]*)\)", text, re.MULTILINE):
        parts = [int(part) for part in args.split(",")] if re.fullmatch(r"[\d, ]+", args) else []
        if kind in ("RegField", "XXRegField"):
            register = f"{'xx' if kind == 'XXRegField' else ''}reg{parts[0]}"
            theirs[name.lower()] = (register, parts[1], parts[2])
        elif kind in ("CTMarkField", "CTLabel"):
            theirs[name.lower()] = ("ct_mark" if kind == "CTMarkField" else "ct_label", parts[0], parts[1])
    return {**theirs, **EFFECTIVE}


def test_fields_have_upstreams_bits() -> None:
    theirs = declared_fields()
    ours = {field.name.lower(): (field.register, field.lo, field.hi) for field in FIELDS}
    missing = {
        name: bits
        for name, bits in theirs.items()
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


def our_marks() -> dict[str, tuple[str, int, int]]:
    """Mark -> register, value in place, mask."""
    return {
        squeezed(name): (mark.field.register, mark.value << mark.field.lo, mark.field.mask)
        for name, mark in MARKS.items()
    }


def test_marks_have_upstreams_values() -> None:
    theirs = declared_marks()
    ours = our_marks()
    assert len(theirs) >= 40
    alone = NO_MARKS_THERE | ADDED_MARKS.keys()
    assert {name: value for name, value in ours.items() if name not in alone} == theirs
    assert alone <= ours.keys()


def test_added_marks_take_no_bits_and_values_of_upstreams() -> None:
    taken = {(register, range_mask(lo, hi)) for register, lo, hi in declared_fields().values()}
    taken |= {(register, mask) for register, _, mask in declared_marks().values()}
    ours = our_marks()
    others = {mark for name, mark in ours.items() if name not in ADDED_MARKS}
    for name in ADDED_MARKS:
        register, _, mask = ours[name]
        if (register, mask) in taken:
            assert ours[name] not in others, name
        else:
            assert not any(register == one and mask & bits for one, bits in taken), name


def range_mask(lo: int, hi: int) -> int:
    return (1 << (hi + 1)) - (1 << lo)


def test_zones_priorities_and_addresses_are_upstreams() -> None:
    constants = go_constants()
    assert {squeezed(zone.name): int(zone) for zone in Zone} == {
        name.lower(): constants[name] for name in ("CtZone", "CtZoneV6", "SNATCtZone", "SNATCtZoneV6")
    }
    found = re.findall(
        r"^\tpriority(\w+)\s+= uint16\((\d+)\)", source("agent/openflow/pipeline.go"), re.MULTILINE
    )
    ours = {squeezed(each.name): int(each) for each in Priority}
    theirs = {name.lower(): int(value) for name, value in found}
    assert {name: value for name, value in ours.items() if name not in ADDED_PRIORITIES} == theirs
    assert {ours[name] for name in ADDED_PRIORITIES}.isdisjoint(theirs.values())
    assert f'GlobalVirtualMAC, _ = net.ParseMAC("{fields.GLOBAL_VIRTUAL_MAC}")' in source(
        "agent/openflow/pipeline.go"
    )
    assert f'"{fields.GLOBAL_VIRTUAL_MAC_FOR_MULTICLUSTER}"' in source("agent/openflow/multicluster.go")
    assert f"MaxBucketsPerMessage = {MAX_BUCKETS}" in source("ovs/openflow/ofctrl_group.go")


ADDED_CATEGORIES = ["routes", "importedroutes"]
"""Categories of entries of which no flow is made."""


def test_cookie_categories_are_upstreams_and_one_without_flows() -> None:
    text = source("agent/openflow/cookie/allocator.go")
    declared = re.findall(
        r"^\t(\w+)(?: Category = iota)?$", text.partition("type Category")[2].partition(")")[0], re.MULTILINE
    )
    ours = [squeezed(category.name) for category in Category]
    assert ours == [*(name.lower() for name in declared), *ADDED_CATEGORIES]
    assert list(Category) == list(range(len(ours)))
