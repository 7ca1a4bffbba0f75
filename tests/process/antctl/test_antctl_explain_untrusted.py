"""`antctl explain` and names that DNS servers gave to a Pod which are not trusted: they deny, and allow nothing."""

from __future__ import annotations

import pytest
from test_antctl_explain import CRD, NO_DEBIAN, OUTSIDE, PASSES, Shop, named, shop  # noqa: F401 (a fixture)

SERVER = {"server": "198.51.100.66"}
SAYS = "Names of DNS servers that are not trusted: deb.debian.org; for rules that drop or reject alone"


@pytest.mark.parametrize("action", ["Drop", "Allow"])
async def test_names_of_untrusted_servers_count_for_rules_that_deny_alone(
    shop: Shop,  # noqa: F811
    action: str,
) -> None:
    """A rule that allows them does not, so that the one which drops everything else decides."""
    rules = [{"action": action, "to": [{"fqdn": "*.debian.org"}]}, {"action": "Drop"}]
    spec = NO_DEBIAN["spec"] | {"egress": rules if action == "Allow" else rules[:1]}  # type: ignore[operator]
    shop.lists[f"{CRD}/clusternetworkpolicies"] = [NO_DEBIAN | {"spec": spec}]
    shop.trace = " 7. AntreaPolicyEgressRule: conj_id=2, cookie 0x1\n 9. EgressMetric: reg3=0x2\n    drop\n"
    shop.names = {"pods": [named("deb.debian.org", "203.0.113.7") | SERVER]}
    found = await shop.explain("--from", "shop/client", *OUTSIDE)
    assert found.exit_code == 3, found.stdout
    decides = {"Drop": "Egress rule 0", "Allow": "Egress rule 1"}[action]
    assert f"Because: {decides} of AntreaClusterNetworkPolicy no-debian" in found.stdout
    assert SAYS in found.stdout
    assert "Names: none, by DNS answers that the agent of Node n1 has." in found.stdout


async def test_names_of_untrusted_servers_of_another_address_are_not_named(shop: Shop) -> None:  # noqa: F811
    shop.lists[f"{CRD}/clusternetworkpolicies"] = [NO_DEBIAN]
    shop.trace = PASSES
    shop.names = {"pods": [named("deb.debian.org", "203.0.113.8") | SERVER]}
    found = await shop.explain("--from", "shop/client", *OUTSIDE)
    assert found.exit_code == 0, found.stdout
    assert "not trusted" not in found.stdout
