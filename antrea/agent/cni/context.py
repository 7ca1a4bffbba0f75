"""Context of CNI calls: the bridge, the namespaces, the addresses and the engine of this Node."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from antrea.agent.cni.request import Call, Failed
from antrea.apis.cni import Code
from antrea.errors import Invalid, Refused, Unavailable
from antrea.outside.disk.ipam import DIRECTORY, Allocation, Ipam
from antrea.outside.netlink.netns import NetnsWorker, PodVeth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from antrea.agent.cni.pod_port import PodPorts
    from antrea.facts.node import ThisNode
    from antrea.facts.ovs import PodInterface


class InstallFlows(Protocol):
    """Function that takes the fact of a new Pod interface and returns when its flows are applied. Raises Refused with the
    reason.
    """

    async def __call__(self, pod: PodInterface) -> None: ...


class WaitForPolicies(Protocol):
    """Function that returns when all policies for a Pod ("namespace/name", UID if known) are applied. Raises Unavailable on
    timeout.
    """

    async def __call__(self, pod: str, uid: str, /) -> None: ...


class CniContext:
    """Services of the agent that CNI calls need; `node` returns the current facts about this Node.

    `host_proc_prefix` is where the Node's file system has the paths that the runtime names ("/host" in the agent's Pod).
    """

    def __init__(
        self,
        ports: PodPorts,
        netns: NetnsWorker,
        *,
        node: Callable[[], ThisNode | None],
        settle: InstallFlows,
        covered: WaitForPolicies,
        ipam_directory: Path = DIRECTORY,
        host_proc_prefix: str = "",
        tx_off: bool = False,
    ) -> None:
        self.ports = ports
        self.netns = netns
        self.node = node
        self.settle = settle
        self.covered = covered
        self._directory = ipam_directory
        self._prefix = host_proc_prefix
        self._tx_off = tx_off
        self._cidrs: tuple[str, ...] = ()
        self._ipam = Ipam((), ipam_directory)

    @property
    def ipam(self) -> Ipam:
        """Allocator for the Pod CIDRs that the Node has now; without any it can only release. Raises Invalid."""
        node = self.node()
        cidrs = node.pod_cidrs if node else ()
        if cidrs != self._cidrs:
            self._ipam, self._cidrs = Ipam(cidrs, self._directory), cidrs
        return self._ipam

    def here(self, netns: str) -> Path:
        """Return the path of the runtime's network namespace for this process."""
        return Path(self._prefix + netns)

    def veth(
        self, call: Call, host_name: str, allocation: Allocation, *, mac: str | None, mtu: int
    ) -> PodVeth:
        """Describe the veth pair that connects the Pod of this call."""
        return PodVeth(
            netns_path=str(self.here(call.netns)),
            host_name=host_name,
            if_name=call.if_name,
            mtu=mtu,
            addresses=allocation.addresses,
            gateways=allocation.gateways,
            mac=mac,
            tx_off=self._tx_off,
        )


@contextlib.contextmanager
def answering(code: Code, *, unavailable: Code = Code.TRY_AGAIN_LATER) -> Iterator[None]:
    """Turn AntreaError into the answer of a CNI call: Unavailable may succeed later, the others are `code`."""
    try:
        yield
    except Unavailable as error:
        later = unavailable is Code.TRY_AGAIN_LATER
        raise Failed(unavailable, f"Not available now: {error.what}" if later else error.what) from error
    except (Refused, Invalid) as error:
        raise Failed(code, str(error)) from error
