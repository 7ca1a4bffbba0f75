"""Every webhook there is, and every collection that their decisions read."""

from __future__ import annotations

from itertools import chain

from antrea.features import FEATURES
from antrea.features.framework.admission import Watched, Webhook
from antrea.features.framework.plug import declared
from antrea.features.registry.feature_warning import WEBHOOKS as FEATURE_WARNINGS

_WEBHOOKS = declared(FEATURES, "admission", Webhook, "WEBHOOKS")
_WATCHED = declared(FEATURES, "admission", Watched, "WATCHED")
WEBHOOKS: tuple[Webhook, ...] = (*chain.from_iterable(_WEBHOOKS.values()), *FEATURE_WARNINGS)
WATCHED: tuple[Watched, ...] = (*chain.from_iterable(_WATCHED.values()),)
