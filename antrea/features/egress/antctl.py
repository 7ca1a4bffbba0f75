"""`antctl egress what-if`, an addition to upstream's commands."""

from __future__ import annotations

from antrea.features.egress.what_if_query import LOSE, PATH
from antrea.features.framework.command import DataCommand, Flag, field

COMMANDS = (
    DataCommand(
        "egress",
        "what-if",
        "A",
        "Print which Nodes would hold Egress IPs if Nodes were lost",
        PATH,
        long="Print, for each address of an ExternalIPPool that the lost Nodes hold, which Node would hold it next, and how connections"
        " survive. Agents are not asked to move anything",
        example="  antctl egress what-if --lose node-1\n  antctl egress what-if --lose node-1,node-2",
        flags=(Flag(LOSE, "", "Name of the Node that is lost; several are separated by commas"),),
        columns=(
            ("EGRESS", field("egress")),
            ("EGRESS-IP", field("egressIP")),
            ("NODE", field("node")),
            ("NEXT-NODE", field("nextNode")),
            ("SURVIVE", field("survive")),
            ("MESSAGE", field("message")),
        ),
    ),
)
