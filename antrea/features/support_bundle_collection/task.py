"""Rows and entries of SupportBundleCollections in the agent: what is to be sent where, and the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from antrea.apis import controlplane as cp
from antrea.facts.fact import Fact
from antrea.features.framework.file_server import accepts_any_host_key
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator


class BundleTask(Fact, frozen=True):
    """A collection of this Node, as antrea-controller has it."""

    name: str
    uid: str
    since: str
    """Maximum age of logs, such as 2h; empty for all."""
    url: str
    host_key: bytes
    credentials: cp.BundleServerAuthConfiguration
    any_host_key: bool = False
    """Whether the bundle may go to an SFTP server of any key, where there is no `host_key`."""

    @property
    def key(self) -> str:
        return self.name

    @property
    def secrets(self) -> Iterator[str]:
        """Yield secrets that must not be in the bundle."""
        yield from filter(None, (self.credentials.bearer_token, self.credentials.api_key))
        if self.credentials.basic_authentication is not None:
            yield self.credentials.basic_authentication.password


class BundleResult(Fact, frozen=True):
    """Result of a collection on this Node; the part writes it."""

    name: str
    uid: str
    error: str = ""
    """Error; empty if the bundle is at the file server."""

    @property
    def key(self) -> str:
        return self.name


class BundleUpload(msgspec.Struct, frozen=True):
    """An entry: putting it makes and sends the bundle, dropping it ends that and removes the file."""

    task: BundleTask

    rank: ClassVar[int] = Rank.REPORT
    category: ClassVar[int] = 0

    @property
    def key(self) -> str:
        return self.task.name


class BundleReport(msgspec.Struct, frozen=True):
    """An entry: a report to antrea-controller."""

    name: str
    uid: str
    node: str
    error: str

    rank: ClassVar[int] = Rank.REPORT
    category: ClassVar[int] = 0

    @property
    def key(self) -> str:
        return self.name


def bundle_task(stored: cp.SupportBundleCollection) -> BundleTask:
    """Make the row of an object."""
    meta, server = stored.metadata, stored.file_server
    return BundleTask(
        meta.name,
        meta.uid or meta.name,
        stored.since_time,
        server.url,
        server.host_public_key,
        stored.authentication,
        accepts_any_host_key(meta.annotations),
    )
