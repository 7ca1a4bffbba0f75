"""Membership in the controller, which keeps the key of the gossip, whatever gates are on."""

from __future__ import annotations

from antrea.features.framework.controller_feature import ControllerFeature

FEATURES = (ControllerFeature(name="Membership"),)
