"""Asks a validator the way the handler does, with objects as a user writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.admission import UserInfo
from antrea.engine import Facts
from antrea.errors import Invalid, Unavailable
from antrea.features.framework.admission import Find, FindAll, Installation, MayGet, Review, Warn
from antrea.features.registry.webhooks import WEBHOOKS

if TYPE_CHECKING:
    from antrea.facts.fact import Fact
    from antrea.features.framework.admission import Webhook

OK = "allowed"


def webhook(path: str) -> Webhook:
    return next(one for one in WEBHOOKS if one.path == path)


def facts_of(*rows: Fact, gates: tuple[str, ...] = ()) -> Facts:
    facts = Facts()
    facts.put(Installation(gates=frozenset(gates)))
    for row in rows:
        facts.put(row)
    return facts


class World:
    """Facts, what the API server has by path, and which Secrets the user may read (None: nobody can say)."""

    def __init__(
        self,
        *rows: Fact,
        gates: tuple[str, ...] = (),
        objects: dict[str, Any] | None = None,
        readable: tuple[str, ...] | None = (),
    ) -> None:
        self.facts = facts_of(*rows, gates=gates)
        self.objects = objects or {}
        self.readable = readable
        self.asked: list[str] = []

    def decide(self, path: str, new: Any = None, old: Any = None, user: str = "eve") -> str:
        """`allowed`, then the warnings, or why not; CREATE without `old`, DELETE without `new`, else UPDATE."""
        row = webhook(path)
        operation = "CREATE" if old is None else "DELETE" if new is None else "UPDATE"
        review: Review[Any] = Review(
            operation,  # type: ignore[arg-type]
            None if new is None else msgspec.convert(new, row.kind),
            None if old is None else msgspec.convert(old, row.kind),
            UserInfo(username=user),
        )
        try:
            return "; ".join([OK, *self._warnings(row, review)])
        except Invalid as error:
            return str(error)

    def _warnings(self, row: Webhook, review: Review[Any]) -> list[str]:
        assert row.validate
        steps, warnings = row.validate(self.facts, review), []
        try:
            step = next(steps)
            while True:
                if isinstance(step, Warn):
                    warnings.append(step.text)
                    step = next(steps)
                elif isinstance(step, MayGet) and self.readable is None:
                    step = steps.throw(Unavailable("the API server is away"))
                else:
                    step = steps.send(self._answer(step))
        except StopIteration:
            return warnings

    def _answer(self, step: Find | FindAll | MayGet) -> Any:
        if isinstance(step, FindAll):
            return [msgspec.convert(found, step.kind) for found in self.objects.get(step.collection, ())]
        if isinstance(step, Find):
            if step.path is None:
                return None
            self.asked.append(step.path)
            found = self.objects.get(step.path)
            return None if found is None else msgspec.convert(found, step.kind)
        self.asked.append(f"{step.namespace}/{step.secret}")
        return self.asked[-1] in (self.readable or ())


def named(spec: Any, name: str = "x", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}, "spec": spec}
