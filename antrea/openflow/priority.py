"""Flow priorities with a meaning of their own; builders may stand one to three above or below."""

from __future__ import annotations

from antrea.openflow.purpose import Purposed


class Priority(Purposed):
    """Source: pkg/agent/openflow/pipeline.go, "Flow priority level"."""

    DNS_METERED = (
        64993,
        "Sends DNS answers within the share of their Pod to the agent, above what meters each Pod.",
    )
    DNS_COPY = (
        64992,
        "Copies DNS answers that only audited rules on names wait for, above what holds those of others.",
    )
    DNS_INTERCEPT = 64991, "Holds DNS answers that a policy by name waits for, above every rule."
    TOP_ANTREA_POLICY = 64990, "Lets packets of accepted connections pass, above every Antrea policy rule."
    HIGH = 210, "Exceptions to the normal case."
    NORMAL = 200, "The normal case."
    LOW = 190, "What is left when no normal flow matched."
    MISS = 0, "Packets that no other flow of the table matched."
