"""Which configuration is in effect when the file changes, cannot work, or has keys that wait for a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from antrea.config.agent import AgentConfig
from antrea.config.effect import InEffect, Value, begin, differences, offer, values
from antrea.errors import Invalid
from antrea.features.framework.config_validation import accept_agent

if TYPE_CHECKING:
    from antrea.features.framework.gate import EnabledGates


def started(text: str = "") -> InEffect[AgentConfig, EnabledGates]:
    return begin(AgentConfig, accept_agent, text)


def test_a_change_is_in_effect_at_once_but_for_keys_that_the_pod_depends_on() -> None:
    text = "defaultMTU: 1300\novsBridge: br-x\nnodePortLocal: {portRange: 5000-6000}"
    now = offer(started(), accept_agent, text)

    assert now.config == msgspec.structs.replace(
        AgentConfig(),
        default_mtu=1300,
        node_port_local=msgspec.structs.replace(AgentConfig().node_port_local, port_range="5000-6000"),
    )
    assert (now.text, now.pending, now.rejected) == (text, ("ovsBridge",), "")
    assert offer(now, accept_agent, "defaultMTU: 1300").pending == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("defaultMTU: many", "antrea-agent.conf: defaultMTU: expected"),
        (
            "featureGates: {Egres: true}",
            "featureGates.Egres: unrecognized feature gate; did you mean Egress?",
        ),
        ("a: [", "antrea-agent.conf: not YAML"),
    ],
)
def test_what_cannot_work_is_refused_and_the_last_good_one_goes_on(text: str, why: str) -> None:
    good = offer(started(), accept_agent, "defaultMTU: 1300")
    now = offer(good, accept_agent, text)

    assert now.rejected.startswith(why)
    assert msgspec.structs.replace(now, rejected="") == good
    assert offer(now, accept_agent, "defaultMTU: 1400").rejected == ""


def test_a_program_does_not_start_with_what_cannot_work() -> None:
    with pytest.raises(Invalid, match="defaultMTU"):
        started("defaultMTU: many")


def test_differences_are_named_by_their_full_path() -> None:
    other = offer(started(), accept_agent, "{antreaProxy: {skipServices: [a/b]}, tunnelPort: 1}").config
    assert list(differences(AgentConfig(), other)) == ["tunnelPort", "antreaProxy.skipServices"]
    assert list(differences(other, other)) == []


def test_every_key_that_waits_for_a_restart_is_one() -> None:
    names = {field.encode_name for field in msgspec.structs.fields(AgentConfig)}
    assert set(AgentConfig.fixed) <= names


def test_values_say_where_they_come_from_and_what_waits() -> None:
    now = offer(started(), accept_agent, "{defaultMTU: 1300, ovsBridge: br-x}")
    rows = {row.key: row for row in values(now)}

    assert rows["defaultMTU"] == Value("defaultMTU", 1300, "antrea-agent.conf")
    assert rows["ovsBridge"] == Value("ovsBridge", "br-int", "default", '"br-x"')
    assert rows["antreaProxy.enable"] == Value("antreaProxy.enable", True, "default")
    assert "antreaProxy" not in rows
