"""Readers of files and messages take what no decoder takes: deep nesting and octets that are no UTF-8 are a damaged input, not a crash."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from antrea.antctl import pod_exec
from antrea.antctl.failure import Failure
from antrea.antctl.kube_proxy import takeover
from antrea.decoding import guarded
from antrea.engine import Facts
from antrea.errors import Invalid
from antrea.features.external_node.agent_part import journal
from antrea.features.flow_export.l7_event import parsed
from antrea.features.framework.conversion_annotation import ANNOTATION, carried
from antrea.features.l7_network_policy.agent_part.files import EngineFiles
from antrea.features.network_policy.agent_part.confirmation import Deadlines
from antrea.features.proxy.agent_part import kept_affinity
from antrea.features.service_external_ip.agent_part import answered_file
from antrea.flow_aggregator.aggregation import united
from antrea.outside.controlplane import state_cache
from antrea.outside.disk.state_file import sealed

if TYPE_CHECKING:
    from pathlib import Path

DEEP = b"[" * 3000 + b"]" * 3000
DEEP_FIELD = b'{"x":' + DEEP + b"}"
UNREADABLE = [
    DEEP_FIELD, DEEP, b"[" + DEEP_FIELD + b"]", b'{"x":"\xff"}', b'"\xff"', b'"\\ud800"', b"",
    b"\x91" * 3000, b"\x91\x81\xa1x" + b"\x91" * 3000, b"\xc1",
]  # fmt: skip
"""The last three are for MessagePack."""
each = pytest.mark.parametrize("data", UNREADABLE, ids=lambda data: repr(data[:8]))


@each
def test_the_journal_of_interfaces_is_set_aside(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "journal"
    file.write_bytes(b"".join(sealed(journal.KIND, [data])))
    assert journal.InterfaceJournal(file).names() == ()
    assert file.with_name("journal.damaged").exists()


@each
def test_the_description_of_a_tenant_is_none(tmp_path: Path, data: bytes) -> None:
    files = EngineFiles(tmp_path)
    files.active.mkdir()
    (files.active / "tenant-7.rules").write_text("")
    (files.active / "tenant-7.json").write_bytes(data)
    assert files.loaded()[7].rule == ""


@each
def test_deadlines_of_policies_begin_anew(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "deadlines"
    file.write_bytes(data)
    assert Deadlines(Facts(), file)._ends == {}


@each
def test_kept_affinity_is_set_aside(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "affinity"
    file.write_bytes(b"".join(sealed(kept_affinity.KIND, [data])))
    assert kept_affinity.KeptAffinity(Facts(), None, tmp_path, file).clients == 0  # type: ignore[arg-type]


@each
def test_answered_addresses_are_set_aside(tmp_path: Path, data: bytes) -> None:
    (tmp_path / answered_file.NAME).write_bytes(b"".join(sealed(answered_file.KIND, [data])))
    assert answered_file.AnsweredFile(tmp_path).read() == []


@each
def test_the_state_of_the_controller_is_set_aside(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "state"
    record = len(data).to_bytes(4, "big") + data
    file.write_bytes(b"".join(sealed(state_cache.FORMAT, [record])))
    assert state_cache.StateCacheFile(file, ()).read().rows == []


@each
def test_an_event_of_the_engine_is_invalid(data: bytes) -> None:
    if data == DEEP_FIELD or data.startswith(b'{"x":'):
        data = b'{"event_type":' + data[5:]
    with pytest.raises(Invalid):
        parsed(data)


@pytest.mark.parametrize(
    "text", ['{"x":' + "[" * 3000 + "]" * 3000 + "}", '{"subnetInfo":"\ud800"}', "[" * 3000]
)
def test_an_annotation_with_fields_of_another_version_is_invalid(text: str) -> None:
    with pytest.raises(Invalid, match="metadata"):
        carried({ANNOTATION: text})


@pytest.mark.parametrize(
    "other", ['{"2":' + "[" * 3000 + "]" * 3000 + "}", '{"2":"\ud800"}', "[" * 3000, "{"]
)
def test_requests_that_are_no_json_are_left_out(other: str) -> None:
    assert united('{"1":{}}', other) == '{"1":{}}'


@pytest.mark.parametrize("verdict", ["{", "[" * 3000, "[]", '{"details": 1}', '{"details": {"causes": [1]}}'])
def test_the_end_of_a_command_in_a_pod_that_cannot_be_decoded_is_a_failure(verdict: str) -> None:
    with pytest.raises(Failure, match="command in Pod web: "):
        pod_exec._code("web", verdict)


@pytest.mark.parametrize(
    "damage", [{"nodes": "{}"}, {"nodes": "[" * 3000}, {"affinity": "[]"}, {"values": "{}"}, {"values": "1"}]
)
def test_what_a_take_over_recorded_is_invalid_if_someone_has_damaged_it(damage: dict[str, str]) -> None:
    values = {f"{file} {path}": "" for file, path in takeover.VALUES}
    data = {"affinity": "null", "nodes": '["n1"]', "values": json.dumps(values)}
    assert guarded("record", takeover.recorded, data)["nodes"] == ["n1"]
    with pytest.raises(Invalid):
        guarded("record", takeover.recorded, data | damage)
