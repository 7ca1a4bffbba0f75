"""A report of a unit to the user, once, in `kubectl describe` of an object."""

from __future__ import annotations

from antrea.engine import Act


class RecordEvent(Act, frozen=True):
    """An Event about the object; `cause` is what makes it another one than the last."""

    api_version: str
    kind: str
    name: str
    uid: str
    reason: str
    message: str
    warning: bool = False
    namespace: str = ""
