"""How long until one large policy is enforced, and how much memory does a flow of policies take in the agent?

`python -m benchmarks.policy_realize`: the agent's units and its sink with a real Open vSwitch in user space; each measurement in a
fresh process, on an empty switch. One policy with a rule of 15,000 blocks, as upstream's own benchmark has it, or with 15,000 rules of
one block each, or with 1,000 rules that all name the same 10,000 members, of Kubernetes and of Antrea's own, from the decoded object
to the switch's answer. The memory is what the process has more than without policies, for
each flow: a rule for the 10,000 members of a group and 1,000 rules beside it, members and rules included. Needs root.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from figure import show

from antrea.apis import controlplane as cp
from antrea.features.grouping.member import packed
from antrea.features.network_policy.agent.received import SentAddressMember, SentPolicy
from antrea.openflow.flow import Flow
from benchmarks.cni_add import namespaces, open_vswitch, processes
from benchmarks.policy_dataplane import blocks, distinct, policy, rule
from benchmarks.policy_packets import Agent, connected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from antrea.facts.fact import Fact

BLOCKS, RULES, MEMBERS = 15_000, 1_000, 10_000
SECONDS, KIB = 1.5, 1.6
ROUNDS = 5
TIMEOUT = 300


def one_rule() -> Iterable[Fact]:
    return policy("p", "p2", [rule(blocks(BLOCKS), 80)])


def many_rules() -> Iterable[Fact]:
    return policy("p", "p2", distinct(0, BLOCKS))


def members() -> Iterable[Fact]:
    for number in range(MEMBERS):
        pod = cp.PodReference(name=f"member-{number}", namespace="shop")
        ip = packed(f"10.{11 + (number >> 16)}.{number >> 8 & 255}.{number & 255}")
        yield SentAddressMember("members", cp.GroupMember(pod=pod, ips=(ip,)))


def to_group(port: int) -> cp.NetworkPolicyRule:
    peer = cp.NetworkPolicyPeer(address_groups=("members",))
    services = (cp.Service(protocol="TCP", port=port),)
    return cp.NetworkPolicyRule(
        direction="In", from_=peer, to=cp.NetworkPolicyPeer(), services=services, enable_logging=False
    )


def beside() -> Iterable[Fact]:
    return (*members(), *policy("p", "p2", [to_group(80), *distinct(0, RULES)]))


def one_group(*, own: bool = False) -> Iterable[Fact]:
    """All rules are for the same members."""
    yield from members()
    rules = [to_group(1 + number) for number in range(RULES)]
    for row in policy("p", "p2", rules):
        if own and isinstance(row, SentPolicy):
            ordered = tuple(msgspec.structs.replace(one, priority=n) for n, one in enumerate(rules))
            found = msgspec.structs.replace(row.policy, rules=ordered, tier_priority=250, priority=5.0)
            yield SentPolicy(found)
        else:
            yield row


SHAPES: dict[str, Callable[[], Iterable[Fact]]] = {
    "one_rule": one_rule,
    "many_rules": many_rules,
    "beside": beside,
    "one_group": one_group,
    "one_group_own": partial(one_group, own=True),
}


def resident() -> float:
    """KiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4.0


async def enforce(directory: Path, ofports: dict[str, int], shape: str) -> None:
    """Print seconds, flows and KiB."""
    agent = Agent(directory, ofports)
    running = asyncio.create_task(agent.engine.run())
    await agent.engine.quiet()
    gc.collect()
    before = resident()
    rows = list(SHAPES[shape]())
    began, used = time.monotonic(), time.process_time()
    for row in rows:
        agent.facts.put(row)
    await asyncio.wait_for(agent.engine.quiet(), TIMEOUT)
    took, own = time.monotonic() - began, time.process_time() - used
    assert not agent.engine.errors.counts, agent.engine.errors.counts
    flows = sum(kind is Flow for kind, _ in agent.engine.applied())
    print(json.dumps([took, flows, resident() - before, own]))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def measured(shape: str) -> tuple[float, int, float, float]:
    """Seconds, flows, KiB, seconds of the agent's processor."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ovs-")))
        spaces = stack.enter_context(namespaces(2))
        open_vswitch(directory, stack.enter_context(processes()))
        words = json.dumps([str(directory), connected(directory, spaces), shape])
        command = [sys.executable, "-m", "benchmarks.policy_realize", words]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        took, flows, kib, own = json.loads(said)
        return took, flows, kib, own


def main() -> None:
    """Exit code 0 with figures that are met or missed."""
    if len(sys.argv) > 1:
        directory, ofports, shape = json.loads(sys.argv[1])
        asyncio.run(enforce(Path(directory), ofports, shape))
        return
    for shape in ("one_rule", "many_rules", "one_group", "one_group_own"):
        found = [measured(shape) for _ in range(ROUNDS)]
        target = SECONDS if shape == "one_rule" else None
        show(
            f"policy_realize_{shape}", f"s for {found[0][1]} flows", [one[0] for one in found], target=target
        )
        show(f"policy_realize_{shape}_cpu", "s of the agent's processor", [one[3] for one in found])
    found = [measured("beside") for _ in range(ROUNDS)]
    per_flow = [kib / flows for _, flows, kib, _ in found]
    show("policy_realize_memory", f"KiB for each of {found[0][1]} flows", per_flow, target=KIB)


if __name__ == "__main__":
    main()
