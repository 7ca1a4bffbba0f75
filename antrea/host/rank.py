"""When an entry of the host is put, compared with flows (50): what receives a packet exists before what sends it there.

`DIVERTS` is for what takes packets away from an address before there is one that draws them.
`RECEIVES` is for what packets meet after a flow sent them: addresses, Egress SNAT, policy routes.
`SENDS` is for what brings packets to flows: NodePort DNAT, Service routes, routes to the Pods of other Nodes.
Drops run in reverse.
"""

from __future__ import annotations

from typing import Final

DIVERTS: Final = 5
RECEIVES: Final = 10
SENDS: Final = 90
