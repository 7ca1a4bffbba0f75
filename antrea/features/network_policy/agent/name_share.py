"""Names within one limit, and the Pods that use them: the Pod with the most releases its own first.

A Pod that resolves ever more names, or names with ever more addresses, thereby loses its own; a name is removed when no Pod
uses it any more.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

AGENT = ""
"""User of the names that the agent itself queries; it releases names after all Pods."""
MAX_USERS = 8
"""Maximum number of Pods that are remembered for one name: enough that a single one cannot remove it."""


class NameShare:
    """Names with their numbers of addresses, in the order in which each Pod has used them."""

    def __init__(self, max_names: int, max_addresses: int) -> None:
        self.max_names, self.max_addresses = max_names, max_addresses
        self._names: dict[str, int] = {}
        """Number of addresses by name."""
        self._users: dict[str, set[str]] = {}
        """Users by name."""
        self._used: dict[str, OrderedDict[str, None]] = {}
        """Names by user, the one used least recently first."""
        self._counts: Counter[str] = Counter()
        """Number of addresses by user."""
        self.addresses = 0

    def __len__(self) -> int:
        return len(self._names)

    @property
    def is_exceeded(self) -> bool:
        """Whether there are more names or addresses than allowed."""
        return len(self._names) > self.max_names or self.addresses > self.max_addresses

    def users(self, name: str) -> frozenset[str]:
        """Pods that use a name; AGENT stands for the agent."""
        return frozenset(self._users.get(name, ()))

    def count(self, user: str) -> int:
        """Number of addresses of the names that a Pod uses."""
        return self._counts[user]

    def used(self, user: str) -> OrderedDict[str, None]:
        """Names that a Pod uses, the one used least recently first."""
        return self._used.get(user, OrderedDict())

    def set_size(self, name: str, addresses: int) -> None:
        """Add a name, or change its number of addresses."""
        more = addresses - self._names.get(name, 0)
        self._names[name] = addresses
        self.addresses += more
        for user in self._users.get(name, ()):
            self._counts[user] += more

    def use(self, name: str, user: str) -> None:
        """Record that a Pod has used an existing name."""
        users = self._users.setdefault(name, set())
        if user not in users:
            if len(users) >= MAX_USERS:
                return
            users.add(user)
            self._counts[user] += self._names[name]
        used = self._used.setdefault(user, OrderedDict())
        used[name] = None
        used.move_to_end(name)

    def release(self, name: str, user: str) -> bool:
        """Record that a Pod does not use a name any more. Return whether it has no user left."""
        users = self._users.get(name, set())
        if user in users:
            users.discard(user)
            self._forget_use(name, user)
        return not users

    def forget(self, name: str) -> None:
        """Remove a name."""
        for user in self._users.pop(name, ()):
            self._forget_use(name, user)
        self.addresses -= self._names.pop(name, 0)

    def _forget_use(self, name: str, user: str) -> None:
        used = self._used[user]
        del used[name]
        self._counts[user] -= self._names[name]
        if not used:
            del self._used[user], self._counts[user]

    def largest_user(self) -> str:
        """Return the Pod whose names have the most addresses; AGENT if no Pod has any."""
        return max(
            (user for user in self._used if user != AGENT), key=self._counts.__getitem__, default=AGENT
        )
