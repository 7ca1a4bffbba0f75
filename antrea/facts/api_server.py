"""Where the API server of the cluster answers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import ClassVar

from antrea.facts.fact import Fact


class ApiServerEndpoint(Fact, frozen=True):
    """An address and port of kube-apiserver itself, of Service `default/kubernetes`; its feed writes it."""

    ip: str
    port: int
    indexes: ClassVar[Mapping[str, Callable[[ApiServerEndpoint], Iterable[Hashable]]]] = {
        "ip": lambda row: (row.ip,)
    }

    @property
    def key(self) -> str:
        return f"{self.ip} {self.port}"
