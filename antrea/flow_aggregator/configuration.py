"""flow-aggregator.conf as it changes: a text that cannot work is refused with the reason, and the one before it stays in effect.

Warnings, such as the reason, are in the log and in Events of the ConfigMap.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antrea.config.effect import begin, offer
from antrea.config.flow_aggregator import FlowAggregatorConfig
from antrea.config.load import read
from antrea.config.shape import collector, seconds
from antrea.errors import Invalid
from antrea.flow_aggregator.clickhouse_url import http_url
from antrea.flow_aggregator.flow_table import MAX_HOURS
from antrea.outside.clickhouse.embedded import is_installed
from antrea.outside.log import klog
from antrea.outside.log.metrics import Metric, Sample
from antrea.outside.reload.supervisor import ACCEPTED, sentences

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from antrea.config.effect import InEffect
    from antrea.config.flow_aggregator import FlowCollector, FlowStore
    from antrea.outside.kube.event_recorder import EventQueue

HOUR: Final = 3600
MIN_MESSAGE: Final = 512


def accept(config: FlowAggregatorConfig) -> None:
    """Check what the types of keys do not. Raises Invalid naming the key that must change."""
    for key, text in (
        ("activeFlowRecordTimeout", config.active_flow_record_timeout),
        ("inactiveFlowRecordTimeout", config.inactive_flow_record_timeout),
        ("clickHouse.commitInterval", config.click_house.commit_interval),
        ("s3Uploader.uploadInterval", config.s3_uploader.upload_interval),
        ("store.commitInterval", config.store.commit_interval),
    ):
        if seconds(text) < 1:
            raise Invalid(key, "must be at least 1s")
    _accept_collector(config.flow_collector)
    if config.s3_uploader.enable and not config.s3_uploader.bucket_name:
        raise Invalid("s3Uploader.bucketName", "names no bucket")
    others = {
        "flowLogger": config.flow_logger.enable,
        "clickHouse": config.click_house.enable,
        "s3Uploader": config.s3_uploader.enable,
        "store": config.store.enable,
    }
    if config.mode == "Proxy" and (on := [key for key, enabled in others.items() if enabled]):
        raise Invalid(
            f"{on[0]}.enable", "must be false in mode Proxy, whose records go to flowCollector alone"
        )
    _accept_store(config.store)
    if config.click_house.enable:
        try:
            http_url(config.click_house.database_url)
        except ValueError as error:
            raise Invalid("clickHouse.databaseURL", str(error)) from error


def _accept_store(config: FlowStore) -> None:
    if not config.enable:
        return
    if not HOUR <= seconds(config.retention) <= MAX_HOURS * HOUR:
        raise Invalid("store.retention", f"{config.retention!r} is not from 1h to {MAX_HOURS}h")
    if not Path(config.directory).is_absolute():
        raise Invalid("store.directory", f"{config.directory!r} is not an absolute path")
    if not is_installed():
        raise Invalid(
            "store.enable",
            "needs the package chdb-core, which is in the image antrea-python-flow-aggregator and not in this one: "
            "use that image, or set it to false and clickHouse to a server",
        )


def _accept_collector(config: FlowCollector) -> None:
    if not config.enable:
        return
    try:
        _, _, protocol = collector(config.address)
    except ValueError as error:
        raise Invalid("flowCollector.address", str(error)) from error
    if 0 < config.max_ipfix_msg_size < MIN_MESSAGE:
        raise Invalid("flowCollector.maxIPFIXMsgSize", f"must be 0, or from {MIN_MESSAGE} to 65535")
    if config.tls.enable and protocol == "udp":
        raise Invalid("flowCollector.tls.enable", "is for tcp: DTLS over udp is not built")


log = klog.logger(__name__)

PERIOD: Final = 1.0
"""Seconds between looks at the file, which kubelet exchanges at its own pace."""
REJECTED: Final = Metric(
    "antrea_flow_aggregator_configuration_rejected", "gauge", "ALPHA",
    "1 while the configuration file has a text that cannot work, and an earlier one is in effect.",
)  # fmt: skip


class ConfigurationFile:
    """The text in effect; another one is looked for while `follow` runs."""

    def __init__(self, path: Path, events: EventQueue) -> None:
        """Raises Invalid."""
        self._path, self._events = path, events
        self._now: InEffect[FlowAggregatorConfig, None] = begin(FlowAggregatorConfig, accept, read(path))
        self._seen = self._now.text
        self._warn(None)

    @property
    def config(self) -> FlowAggregatorConfig:
        """Configuration in effect."""
        return self._now.config

    @property
    def rejected(self) -> str:
        """Why a newer text is not in effect; empty if none was refused."""
        return self._now.rejected

    @property
    def metrics(self) -> str:
        """In Prometheus' format."""
        return REJECTED.text([Sample(bool(self._now.rejected))])

    async def follow(self, change: Callable[[FlowAggregatorConfig], Awaitable[bool]]) -> None:
        """Offer each configuration that comes to `change`, until that returns false: the program has to be built anew."""
        while True:
            await asyncio.sleep(PERIOD)
            if self.reload() and not await change(self.config):
                return

    def reload(self) -> bool:
        """Read the file; return whether another configuration is in effect than before."""
        try:
            text = read(self._path)
        except Invalid as error:
            log.v(2).info("Failed to read the configuration", err=str(error))
            return False
        if text == self._seen:
            return False
        self._seen, before = text, self._now
        self._now = offer(before, accept, text)
        self._warn(before)
        return self._now.config != before.config

    def _warn(self, before: InEffect[FlowAggregatorConfig, None] | None) -> None:
        """Log warnings that `before` did not have."""
        for line in sentences(before, self._now):
            log.warning("Configuration", reason=line.reason, message=line.message)
            self._events.record(line.reason, line.message, warning=True)
        if before and before.rejected and not self._now.rejected:
            message = f"{FlowAggregatorConfig.file}: accepted and in effect, after one that was refused"
            log.info("Configuration", reason=ACCEPTED, message=message)
            self._events.record(ACCEPTED, message)
