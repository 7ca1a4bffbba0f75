"""Every webhook there is, and every collection that their decisions read.

Kinds for which upstream has no webhook have one that only warns while their feature is off or not built (`feature_warning`). It never
denies, also when it does not answer. A feature that is built, and whose gate only agents read, has none.
"""

from __future__ import annotations

from itertools import chain

from antrea.features import FEATURES
from antrea.features.framework.admission import Watched, Webhook
from antrea.features.framework.plug import declared

_WEBHOOKS = declared(FEATURES, "admission", Webhook, "WEBHOOKS")
_WATCHED = declared(FEATURES, "admission", Watched, "WATCHED")
WEBHOOKS: tuple[Webhook, ...] = (*chain.from_iterable(_WEBHOOKS.values()),)
WATCHED: tuple[Watched, ...] = (*chain.from_iterable(_WATCHED.values()),)
