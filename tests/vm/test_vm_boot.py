"""The virtual machine has its checkout wherever that lies, and ends in time; test_vm_cells.py has its kernel and exit status."""

import sys
from pathlib import Path

import pytest

from antrea.errors import Unavailable
from lab import vm


@pytest.mark.wide
def test_a_checkout_below_the_temporary_directory_is_there_in_the_machine(
    stock: vm.Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert vm.hidden([tmp_path]) == [tmp_path.resolve()]
    (tmp_path / "file").write_text("of a checkout\n")
    monkeypatch.chdir(tmp_path)
    status, console = vm.run(stock, ["sh", "-c", "cat file; touch made; ls /tmp"], timeout=120)
    assert (status, "of a checkout" in console) == (0, True)
    assert (tmp_path / "made").exists()
    # all else below it is the machine's own, but for where this test and its programs are
    needed = vm.hidden([tmp_path, Path(sys.prefix), Path(sys.base_prefix), stock.folder])
    shown = {path.relative_to("/tmp").parts[0] for path in needed if path.is_relative_to("/tmp")}
    assert {path.name for path in Path("/tmp").iterdir() if path.name in console.split()} == shown


def test_a_machine_that_takes_too_long_is_ended_and_says_so(stock: vm.Kernel) -> None:
    with pytest.raises(Unavailable, match="not done after"):
        vm.run(stock, ["sleep", "600"], timeout=5)
