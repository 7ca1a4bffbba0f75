"""Labs that modules share: each comes up for the first module that asks for it, and goes down after the last one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    import pytest

T = TypeVar("T")


class Shared:
    """What the fixtures of these names make, each once; few of it stands at a time."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._last: dict[str, str] = {}
        self._standing: dict[str, tuple[contextlib.ExitStack, Any]] = {}

    def sort(self, items: list[pytest.Item]) -> None:
        """Modules that share run one after the other, in the order of the names; those that share nothing come first."""
        users = {(_module(item), name) for item in items for name in self._used(item)}

        def place(item: pytest.Item) -> tuple[int, int]:
            used = [number for number, name in enumerate(self._names) if (_module(item), name) in users]
            return min(used, default=-1), len(used)

        items.sort(key=place)

    def groups(self, items: Iterable[pytest.Item]) -> dict[str, str]:
        """Return a group for each module: those that share a lab, also through a third one, are in one, for one process to run."""
        group = dict[str, str]()
        for item in items:
            joined = {_module(item), *self._used(item)}
            known = {group[name] for name in joined & group.keys()}
            joined |= {name for name, its in group.items() if its in known}
            group |= dict.fromkeys(joined, min(joined))
        return group

    def expect(self, items: Iterable[pytest.Item]) -> None:
        """These are the tests that will run, in this order."""
        for item in items:
            self._last.update((name, _module(item)) for name in self._used(item))

    def use(
        self, request: pytest.FixtureRequest, make: Callable[[], AbstractContextManager[T]]
    ) -> Iterator[T]:
        """The body of a fixture of a module."""
        name = str(request.fixturename)
        if name not in self._standing:
            with contextlib.ExitStack() as stack:
                made = stack.enter_context(make())
                self._standing[name] = stack.pop_all(), made
        yield self._standing[name][1]
        if request.node.nodeid == self._last.get(name):
            self._standing.pop(name)[0].close()

    def end(self) -> None:
        """Nobody asks any more: the session is over, or interrupted between two modules."""
        for name in list(self._standing):
            self._standing.pop(name)[0].close()

    def _used(self, item: pytest.Item) -> set[str]:
        """Return the shared labs of a test; a fixture of its module hides the shared one of that name."""
        definitions = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009 (of functions alone, and of no public interface)
        return {name for name in self._names if name in definitions and not _module_of(definitions[name][-1])}


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _module_of(definition: pytest.FixtureDef[Any]) -> str:
    """Return the module that defines a fixture, "" if a conftest.py does."""
    return definition.baseid if definition.baseid.endswith(".py") else ""
