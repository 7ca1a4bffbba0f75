"""The three tiers of examples/three-tier behind an address of a pool, for clients on the subnet of the Nodes and behind a router."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from poll import CLIENTS, IP, page, poll, vote, votes

from antrea.errors import Unavailable

if TYPE_CHECKING:
    from lab.cluster import Lab

DB = "import socket; socket.create_connection((__import__('os').environ['POLL_DB_SERVICE_HOST'], 80), 2)"


@pytest.mark.wide
def test_clients_on_the_subnet_and_behind_a_router_reach_the_page_and_its_tiers(lab: Lab) -> None:
    with poll(lab, ("node-1", "node-2")):
        for machine in CLIENTS:
            vote(lab, machine, "red")
        assert [votes(lab, machine) for machine in CLIENTS] == [{"red": 2, "green": 0, "blue": 0}] * 2
        assert len({page(lab, "outside") for _ in range(40)}) == 3
        shown = lab.api.kubectl("-n", "poll", "get", "service", "poll-ui", "--no-headers").split()
        assert shown[1:4:2] == ["LoadBalancer", IP]
        # each tier is reached by the one before it alone
        for tier, reached in (("app", True), ("ui", False)):
            words = ("-n", "poll", "exec", f"deploy/poll-{tier}", "--", "python3", "-c", DB)
            if reached:
                lab.api.kubectl(*words)
            else:
                with pytest.raises(Unavailable, match="timed out"):
                    lab.api.kubectl(*words)
