"""The stock kernel has what this machine's may lack, and a failing command is reported as failing."""

import pytest

from antrea.errors import Unavailable
from antrea.lab import vm

MODULES = ["openvswitch", "vport-geneve", "8021q", "dummy", "wireguard", "ip_vs", "sctp"]
COMMAND = f"modprobe -a {' '.join(MODULES)}; echo loaded $?; echo said $((6 * 7)); exit 7"


@pytest.fixture(scope="module")
def ended(stock: vm.Kernel) -> tuple[int, str]:
    """One boot: exit status and text of its command."""
    return vm.run(stock, ["bash", "-c", COMMAND], timeout=120)


def test_the_stock_kernel_loads_what_the_kernel_datapath_needs(ended: tuple[int, str]) -> None:
    _, console = ended
    assert (console.count("loaded 0"), console.count("FATAL")) == (1, 0)


def test_the_exit_status_and_the_text_of_the_command_come_back(ended: tuple[int, str]) -> None:
    status, console = ended
    assert status == 7
    assert "said 42" in console


def test_a_machine_that_takes_too_long_is_ended_and_says_so(stock: vm.Kernel) -> None:
    with pytest.raises(Unavailable, match="not done after"):
        vm.run(stock, ["sleep", "600"], timeout=5)
