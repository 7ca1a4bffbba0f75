"""Environment variables that the manifest sets for our programs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def own_config_map() -> str:
    """Name of the ConfigMap with the configuration of our programs."""
    return os.environ.get("ANTREA_CONFIG_MAP_NAME") or "antrea-config"


def own_namespace(environ: Mapping[str, str] | None = None) -> str:
    """Where this Pod is; outside of a Pod where our Pods are by default."""
    return (os.environ if environ is None else environ).get("POD_NAMESPACE", "kube-system")
