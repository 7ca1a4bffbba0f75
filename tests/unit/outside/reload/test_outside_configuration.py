"""The configuration on disk and as it changes: what a start takes, what is kept, what a failure goes back to."""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import TYPE_CHECKING

import pytest

from antrea.config.agent import AgentConfig
from antrea.errors import Invalid
from antrea.features.framework.config_validation import accept_agent
from antrea.outside.reload.configuration import Configuration

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.features.framework.gate import EnabledGates


def configuration(path: Path, text: str) -> Configuration[AgentConfig, EnabledGates]:
    (path / "conf").write_text(text)
    return Configuration(AgentConfig, accept_agent, path / "conf", path / "kept")


def test_the_text_of_a_program_that_works_is_kept_for_a_start_with_one_that_cannot(tmp_path: Path) -> None:
    first = configuration(tmp_path, "defaultMTU: 1300")
    assert not (tmp_path / "kept").exists()
    first.works()

    again = configuration(tmp_path, "defaultMTU: many")
    assert again.now.config.default_mtu == 1300
    assert again.now.rejected.startswith("antrea-agent.conf: defaultMTU")
    again.works()
    assert kept(tmp_path) == "defaultMTU: 1300"


def test_a_start_takes_the_newer_of_the_file_and_what_was_kept(tmp_path: Path) -> None:
    first = configuration(tmp_path, "defaultMTU: 1300")
    first.offer("defaultMTU: 1400")
    first.works()
    os.utime(tmp_path / "kept", (2000, 2000))

    os.utime(tmp_path / "conf", (1000, 1000))
    assert (
        Configuration(AgentConfig, accept_agent, tmp_path / "conf", tmp_path / "kept").now.config.default_mtu
        == 1400
    )
    os.utime(tmp_path / "conf", (3000, 3000))
    assert (
        Configuration(AgentConfig, accept_agent, tmp_path / "conf", tmp_path / "kept").now.config.default_mtu
        == 1300
    )


def test_a_first_start_with_what_cannot_work_ends_with_its_sentence(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="defaultMTU"):
        configuration(tmp_path, "defaultMTU: many")
    with pytest.raises(Invalid, match="cannot be read"):
        Configuration(AgentConfig, accept_agent, tmp_path / "none", tmp_path / "kept")


def kept(directory: Path) -> str:
    """What the next start may go back to."""
    head, _, text = (directory / "kept").read_text().partition("\n")
    assert head.startswith("# last good configuration, digest of what follows: ")
    return text


@pytest.mark.untraced
def test_no_octet_of_the_last_good_text_can_end_a_start_or_change_a_key(tmp_path: Path) -> None:
    configuration(tmp_path, "defaultMTU: 1300").works()
    whole = (tmp_path / "kept").read_bytes()
    for at, before in enumerate(whole):
        for octet in {0, 10, 0x80, before ^ 1} - {before}:
            (tmp_path / "kept").write_bytes(whole[:at] + bytes((octet,)) + whole[at + 1 :])
            os.utime(tmp_path / "kept", (4e9, 4e9))
            assert configuration(tmp_path, "defaultMTU: 1400").now.config.default_mtu in (1300, 1400)
    assert (tmp_path / "kept.damaged").exists()


@pytest.mark.parametrize("text", ["", "# last good", "defaultMTU: 1300"])
def test_a_last_good_text_that_lacks_its_first_line_counts_for_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "kept").write_text(text)
    os.utime(tmp_path / "kept", (4e9, 4e9))
    mine = configuration(tmp_path, "defaultMTU: 1400")
    # nobody is told that a configuration was refused: nobody has written one
    assert (mine.now.config.default_mtu, mine.now.rejected) == (1400, "")


def test_only_what_changes_the_program_rebuilds_it(tmp_path: Path) -> None:
    mine = configuration(tmp_path, "")
    assert not mine.offer("# a comment")
    assert not mine.offer("ovsBridge: br-x")
    assert not mine.offer("defaultMTU: many")
    assert mine.offer("defaultMTU: 1300")
    assert not mine.offer("defaultMTU: 1300")


def test_an_empty_text_has_every_default(tmp_path: Path) -> None:
    mine = configuration(tmp_path, "defaultMTU: 1300")
    assert mine.offer("")
    assert mine.now.config == AgentConfig()


def test_a_configuration_that_fails_at_work_is_not_tried_again(tmp_path: Path) -> None:
    mine = configuration(tmp_path, "defaultMTU: 1300")
    mine.works()
    assert mine.offer("transportInterface: none")
    assert mine.fails(Invalid("transportInterface", "none is no interface"))

    assert mine.now.config.default_mtu == 1300
    assert mine.now.rejected == "transportInterface: none is no interface"
    assert not mine.offer("transportInterface: none")
    assert mine.now.rejected == "transportInterface: none is no interface"
    assert mine.offer("defaultMTU: 1400")
    assert mine.now.rejected == ""


def test_a_text_with_keys_that_wait_is_not_kept(tmp_path: Path) -> None:
    mine = configuration(tmp_path, "")
    mine.works()
    mine.offer("{defaultMTU: 1300, ovsBridge: br-x}")
    mine.works()
    assert kept(tmp_path) == ""


def test_a_program_that_never_worked_has_nothing_to_go_back_to(tmp_path: Path) -> None:
    assert not configuration(tmp_path, "").fails(Invalid("a", "b"))


def test_a_disk_that_is_full_is_only_told(tmp_path: Path) -> None:
    mine = configuration(tmp_path, "")
    (tmp_path / ".kept.part").mkdir()
    mine.works()
    assert not (tmp_path / "kept").exists()


def test_a_start_with_what_fails_at_work_goes_back_to_the_last_good_one(tmp_path: Path) -> None:
    configuration(tmp_path, "defaultMTU: 1300").works()
    os.utime(tmp_path / "kept", (1000, 1000))
    again = configuration(tmp_path, "transportInterface: none")
    assert again.now.config.transport_interface == "none"
    assert not again.is_new  # nothing was changed: however long it takes to work, it has that time

    assert again.fails(Invalid("transportInterface", "none is no interface"))
    assert again.now.config.default_mtu == 1300
    assert again.now.rejected == "transportInterface: none is no interface"
    assert not again.offer("transportInterface: none")
    assert not again.fails(Invalid("a", "b"))
    again.works()
    assert kept(tmp_path) == "defaultMTU: 1300"


def test_a_start_with_a_last_good_text_that_cannot_work_any_more_takes_the_file(tmp_path: Path) -> None:
    digest = blake2b(b"defaultMTU: many", digest_size=32).hexdigest()
    head = f"# last good configuration, digest of what follows: {digest}\n"
    (tmp_path / "kept").write_text(f"{head}defaultMTU: many")
    os.utime(tmp_path / "kept", (4e9, 4e9))
    mine = configuration(tmp_path, "defaultMTU: 1300")
    assert (mine.now.config.default_mtu, "defaultMTU" in mine.now.rejected) == (1300, True)


def test_one_that_was_overtaken_before_it_worked_is_gone_back_to_and_then_what_worked(tmp_path: Path) -> None:
    mine = configuration(tmp_path, "defaultMTU: 1300")
    mine.works()
    for mtu in (1310, 1320, 1330):
        assert mine.offer(f"defaultMTU: {mtu}")
    found = []
    while mine.fails(Invalid("a", "b")):
        found.append((mine.now.config.default_mtu, mine.is_new))
    assert found == [(1320, True), (1300, False)]


def test_a_text_that_failed_is_told_again_when_it_is_written_again(tmp_path: Path) -> None:
    mine = configuration(tmp_path, "")
    mine.works()
    assert mine.offer("transportInterface: none")
    assert mine.fails(Invalid("transportInterface", "none is no interface"))
    mine.offer("# all is well")
    mine.works()
    assert mine.now.rejected == ""
    assert mine.offer("transportInterface: none")


def test_what_leads_to_the_api_server_is_compared_with_what_has_worked(tmp_path: Path) -> None:
    mine = configuration(tmp_path, "")
    assert mine.keeps("kube_api_server_override")
    mine.offer("kubeAPIServerOverride: there")
    mine.offer("{kubeAPIServerOverride: there, defaultMTU: 1300}")
    assert not mine.keeps("kube_api_server_override")
    assert mine.keeps("client_connection")
