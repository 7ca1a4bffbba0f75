"""`antctl supportbundle`, for this program and for the cluster."""

from __future__ import annotations

from antrea.features.framework.command import Action

ACTIONS = (
    Action("", "supportbundle", "AC", "Generate support bundle", "antrea.antctl.supportbundle.command"),
    Action("", "supportbundle", "R", "Generate support bundle", "antrea.antctl.supportbundle.remote"),
)
