"""Objects as users write them, and what kubectl says of them."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.cluster import Lab


def create(lab: Lab, manifest: dict[str, Any] | str, *flags: str) -> str:
    """What `kubectl create` prints, on stdout and stderr."""
    done = subprocess.run(
        lab.api.command(["create", *flags, "-f", "-"]),
        input=manifest if isinstance(manifest, str) else json.dumps(manifest),
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    return (done.stdout + done.stderr).strip()


def decided(lab: Lab) -> bool:
    """Whether a webhook decides: a Tier that nobody may create is refused by us."""
    return "tier nobody priority 255 is reserved" in create(lab, tier("nobody", 255))


def tier(name: str, priority: int) -> dict[str, Any]:
    return crd("Tier", name, {"priority": priority})


def crd(kind: str, name: str, spec: dict[str, Any], version: str = "v1beta1") -> dict[str, Any]:
    return {
        "apiVersion": f"crd.antrea.io/{version}",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def policy(name: str, tier: str, **rule: Any) -> dict[str, Any]:
    applied = [{"podSelector": {"matchLabels": {"app": "web"}}}]
    spec = {"priority": 5, "tier": tier, "appliedTo": applied, "ingress": [{"action": "Drop", **rule}]}
    return crd("ClusterNetworkPolicy", name, spec)
