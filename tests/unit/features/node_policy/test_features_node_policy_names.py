"""Names in rules on Nodes, and DNS servers that are not trusted."""

from __future__ import annotations

from policy_world import rule
from test_features_node_policy import ALLOWED, NAMES, NODES, TOLD, failures, of_names, only

from antrea.features.node_policy.fqdn import UntrustedNodeAnswer
from antrea.features.node_policy.unrealized import UNCLOSED
from antrea.host.nft import NftElement


def test_a_rule_that_denies_a_name_is_not_realized_where_a_server_that_is_not_trusted_gave_addresses_to_it() -> (
    None
):
    own = UntrustedNodeAnswer("*.example.com", "198.51.100.66")
    assert failures(*NODES, only(ALLOWED), TOLD, own) == ""
    drops = rule("Out", NAMES, action="Drop", name="r")
    assert failures(*NODES, only(drops), TOLD) == ""
    assert failures(*NODES, only(drops), TOLD, own) == f"r: {UNCLOSED}: 198.51.100.66 on *.example.com"
    assert of_names(NftElement, *NODES, only(drops), TOLD, own) == []
