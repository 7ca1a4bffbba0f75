"""Services and pools, and a controller whose writes come at once."""

from __future__ import annotations

from typing import Any

import msgspec

from antrea.apis import core
from antrea.apis.crd.egress import Egress
from antrea.apis.crd.pool import ExternalIPPool
from antrea.apis.service_address import ALLOCATED, ServiceAddress
from antrea.apis.status import Status
from antrea.engine import Engine, Facts
from antrea.facts.external_ip import FencedLeadership, PendingAllocation, PooledService
from antrea.features.egress.controller.allocation import UNITS as EGRESS_UNITS
from antrea.features.egress.controller.feature import egress_row
from antrea.features.external_ip_pool.controller import FEATURE as POOLS
from antrea.features.external_ip_pool.pool import PoolRow, pool_row
from antrea.features.framework.event import RecordEvent
from antrea.features.service_external_ip.controller import FEATURE
from antrea.features.service_external_ip.service import pooled_service

POOL, SHARED = "service.antrea.io/external-ip-pool", "service.antrea.io/allow-shared-load-balancer-ip"


class Cluster:
    """Services and pools, and a controller whose writes come at once."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.facts.put(FencedLeadership())
        self.engine = Engine(self.facts, [*POOLS.units, *EGRESS_UNITS, *FEATURE.units])
        self.services: dict[str, dict[str, Any]] = {}
        self.events: list[tuple[str, str, bool]] = []
        self.writes = 0
        self._version = 0

    def pool(self, name: str, first: str, last: str, **more: Any) -> None:
        spec = {"ipRanges": [{"start": first, "end": last}], "nodeSelector": {}} | more
        meta = {"name": name, "uid": f"u-{name}", "generation": 1}
        self.facts.put(pool_row(msgspec.convert({"metadata": meta, "spec": spec}, ExternalIPPool)))

    def unpool(self, name: str) -> None:
        self.facts.drop(PoolRow, name)

    def service(
        self,
        name: str,
        pool: str = "",
        wants: str = "",
        has: str = "",
        *,
        shared: bool = False,
        space: str = "shop",
        **spec: Any,
    ) -> None:
        """Made in this order; `has` is what its status says from the beginning."""
        notes = {POOL: pool} if pool else {}
        found = {
            "metadata": {"name": name, "namespace": space, "uid": f"u-{name}", "annotations": notes | ({SHARED: "true"} if shared else {})},
            "spec": {"type": "LoadBalancer", "clusterIPs": ["10.96.0.9"], "ipFamilies": ["IPv4"], "loadBalancerIP": wants} | spec,
            "status": {"loadBalancer": {"ingress": [{"ip": has}]} if has else {}},
        }  # fmt: skip
        self._version += 1
        found["metadata"]["creationTimestamp"] = f"{self._version:06}"
        self._put(found)

    def change(self, name: str, *, notes: dict[str, str | None] | None = None, **spec: Any) -> None:
        found = self.services[name]
        annotations = found["metadata"]["annotations"] | (notes or {})
        found["metadata"]["annotations"] = {
            key: value for key, value in annotations.items() if value is not None
        }
        found["spec"] |= spec
        self._put(found)

    def delete(self, name: str) -> None:
        del self.services[name]
        self.facts.drop(PooledService, f"shop/{name}")

    def egress(self, name: str, pool: str, address: str = "") -> None:
        spec = {"appliedTo": {}, "externalIPPool": pool, "egressIP": address}
        self._version += 1
        meta = {"name": name, "uid": f"u-{name}", "generation": 1, "creationTimestamp": f"{self._version:06}"}
        self.facts.put(egress_row(msgspec.convert({"metadata": meta, "spec": spec}, Egress)))

    def _put(self, found: dict[str, Any]) -> None:
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        self.services[found["metadata"]["name"]] = found
        row = pooled_service(msgspec.convert(found, core.Service))
        if row:
            self.facts.put(row)
        else:
            self.facts.drop(PooledService, f"shop/{found['metadata']['name']}")

    def settle(self) -> None:
        for _ in range(20):
            plan = self.engine.plan()
            self.events += [
                (act.name, act.message, act.warning) for act in plan.acts if isinstance(act, RecordEvent)
            ]
            writes = [one for one in plan.put if isinstance(one, ServiceAddress)]
            for one in writes:
                self._write(one)
            if not writes:
                return
        raise AssertionError("never at rest")

    def _write(self, entry: ServiceAddress) -> None:
        found = self.services[entry.name]
        assert found["metadata"]["resourceVersion"] == str(entry.generation)
        self.writes += 1
        for owner, _ in entry.promised:
            self.facts.drop(PendingAllocation, owner)
        condition = entry.condition
        found["status"] = {
            "loadBalancer": {"ingress": [{"ip": ip} for ip in entry.addresses]} if entry.addresses else {}
        }
        if condition:
            found["status"]["conditions"] = [msgspec.to_builtins(condition)]
        self._put(found)

    def ip(self, name: str) -> str:
        self.settle()
        ingress = self.services[name]["status"]["loadBalancer"].get("ingress", [{"ip": ""}])
        return str(ingress[0]["ip"])

    def ips(self, name: str) -> list[str]:
        self.settle()
        return [one["ip"] for one in self.services[name]["status"]["loadBalancer"].get("ingress", ())]

    def used(self, pool: str) -> int:
        self.settle()
        found = self.engine.standing().values()
        (status,) = (
            one for one in found if isinstance(one, Status) and one.path.endswith(f"/externalippools/{pool}")
        )
        return int(dict(status.fields)["usage.used"])

    def condition(self, name: str) -> tuple[str, str]:
        self.settle()
        (found,) = self.services[name]["status"]["conditions"]
        assert found["type"] == ALLOCATED
        return found["status"], found["message"]


def both() -> dict[str, Any]:
    return {"ipRanges": [{"start": "1.2.3.4", "end": "1.2.3.6"}, {"start": "fd00::4", "end": "fd00::5"}]}
