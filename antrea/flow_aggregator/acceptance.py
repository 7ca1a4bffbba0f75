"""Validation of flow-aggregator.conf beyond the types of its keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from antrea.config.shape import collector, seconds
from antrea.errors import Invalid
from antrea.flow_aggregator.clickhouse_url import http_url
from antrea.flow_aggregator.flow_table import MAX_HOURS
from antrea.outside.clickhouse.embedded import is_installed

if TYPE_CHECKING:
    from antrea.config.flow_aggregator import FlowAggregatorConfig, FlowCollector, FlowStore

HOUR: Final = 3600
MIN_MESSAGE: Final = 512


def accept(config: FlowAggregatorConfig) -> None:
    """Raises Invalid naming the key that must change."""
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
