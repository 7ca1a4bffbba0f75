"""Event that a unit reports once, in `kubectl describe` of an object."""

from __future__ import annotations

from antrea.engine import Act


class RecordEvent(Act, frozen=True):
    """Event about the object; a different `cause` makes it a new one."""

    api_version: str
    kind: str
    name: str
    uid: str
    reason: str
    message: str
    warning: bool = False
    namespace: str = ""
