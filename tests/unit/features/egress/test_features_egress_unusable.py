"""An Egress with an address that no host outside can have has none, and its status says why."""

from __future__ import annotations

import msgspec
import pytest
from test_features_proxy_unusable import ODD

from antrea.apis.crd import egress as crd
from antrea.features.egress.agent.allocated import judge
from antrea.features.egress.agent.feature import egress_rows


@pytest.mark.parametrize(("ip", "kind"), ODD)
def test_an_egress_that_was_stored_with_such_an_address_has_none(ip: str, kind: str) -> None:
    found = msgspec.convert(
        {"metadata": {"name": "e"}, "spec": {"egressIP": ip, "appliedTo": {}}}, crd.Egress
    )
    (row,) = egress_rows(found)
    assert (row.ip, row.invalid) == ("", ip)
    assert judge(row, None, ()) == f"{ip} is one of {kind}, with which no Node can send"
