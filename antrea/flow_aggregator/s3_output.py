"""Joined records as files of CSV in a bucket of an S3 server.

Columns, names of files and keys of the configuration are upstream's.
parity: pkg/flowaggregator/s3uploader/s3uploader.go
"""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import os
import secrets
import string
import tempfile
import time
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from antrea.apis.flow import FlowRecord
from antrea.errors import Invalid, Unavailable
from antrea.flow_aggregator.flow_table import COLUMNS as TABLE_COLUMNS
from antrea.outside.upload.plan import Credentials, UploadOrder
from antrea.outside.upload.uploader import UploadFailed, uploaded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from antrea.config.flow_aggregator import S3Uploader

REGION: Final = "us-west-2"
NAME_LENGTH: Final = 12
_LABELS: Final = ("sourcePodLabels", "destinationPodLabels")
_INSERTED: Final = "timeInserted"
_LAST: Final = ("egressName", "egressIP", "egressNodeName")
_L7: Final = ("appProtocolName", "httpVals")
_OURS: Final = ("biflowDirection",)
"""Columns of the table that files do not have."""


def _columns(last: Sequence[str]) -> tuple[str, ...]:
    columns: list[str] = []
    for name in TABLE_COLUMNS:
        if name not in (*_LAST, *_L7, *_OURS):
            columns += (name, "destinationServiceIP") if name == "destinationClusterIP" else (name,)
    return (*columns, _INSERTED, *last)


COLUMNS: Final = _columns(_LAST)
"""Columns in the order in which they are written, without a header line."""
WITH_REQUESTS: Final = _columns((*_LAST[:-1], *_L7, _LAST[-1]))
"""The same of upstream v2.3.2, which has those of HTTP."""
_FIELDS: Final = {field.encode_name: field.name for field in msgspec.structs.fields(FlowRecord)} | {
    "clusterUUID": "cluster_id"
}
_KNOWN: Final = tuple(name for name in WITH_REQUESTS if name in _FIELDS)
_values = attrgetter(*(_FIELDS[name] for name in _KNOWN))


def csv_text(records: Sequence[FlowRecord], now: int, columns: Sequence[str] = COLUMNS) -> str:
    """A line of each record, which was inserted at `now`, in seconds of the epoch."""
    out = io.StringIO()
    # quotes only where a value would become two, or another line
    writer = csv.writer(out, lineterminator="\n")
    for record in records:
        row: dict[str, Any] = dict(zip(_KNOWN, _values(record), strict=True))
        row[_INSERTED] = now
        for name in _LABELS:
            # quoted with single quotes, also where there are none
            row[name] = f"'{row[name]}'"
        writer.writerow([row[name] for name in columns])
    return out.getvalue()


class S3Output:
    """Writes one file at a time."""

    def __init__(
        self, config: S3Uploader, environ: Mapping[str, str] = os.environ, *, requests: bool = False
    ) -> None:
        """Credentials, AWS_REGION and AWS_ENDPOINT_URL are of the environment, as AWS' own programs read them.

        `requests`: with those of HTTP.
        """
        self._config, self._environ = config, environ
        self._columns = WITH_REQUESTS if requests else COLUMNS

    async def write(self, records: Sequence[FlowRecord]) -> None:
        """Raises Unavailable; Invalid for what the user must change."""
        url, credentials = bucket_url(self._config, self._environ), self._credentials()
        letters = string.ascii_lowercase + string.digits
        mark = "".join(secrets.choice(letters) for _ in range(NAME_LENGTH))
        suffix = ".gz" if self._config.compress else ""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "records")
            await asyncio.to_thread(self._save, file, records)
            order = UploadOrder(url, f"records-{mark}.csv{suffix}", str(file), credentials, tries=1)
            try:
                await uploaded(order)
            except UploadFailed as error:
                raise Unavailable(error.why) from error

    def _save(self, file: Path, records: Sequence[FlowRecord]) -> None:
        data = csv_text(records, int(time.time()), self._columns).encode(errors="replace")
        file.write_bytes(gzip.compress(data) if self._config.compress else data)

    def _credentials(self) -> Credentials:
        key, secret = (
            self._environ.get(f"AWS_{name}", "") for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")
        )
        if not key or not secret:
            raise Invalid(
                "s3Uploader",
                "needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: see Secret flow-aggregator-aws-credentials",
            )
        return Credentials(key, secret, session_token=self._environ.get("AWS_SESSION_TOKEN", ""))

    async def close(self) -> None:
        """Nothing is open between files."""


def bucket_url(config: S3Uploader, environ: Mapping[str, str]) -> str:
    """Return the URL of the uploader's bucket. Raises Invalid if the endpoint of the environment does not use TLS."""
    region = config.region or environ.get("AWS_REGION") or REGION
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    endpoint = endpoint or f"https://s3.{region}.amazonaws.com"
    split = urlsplit(endpoint)
    if split.scheme != "https" or not split.hostname or split.path.strip("/"):
        raise Invalid("AWS_ENDPOINT_URL", f"{endpoint!r} is not https://host[:port]")
    path = "/".join(part for part in (config.bucket_name, config.bucket_prefix.strip("/")) if part)
    return f"s3://{split.netloc}/{quote(path)}?region={quote(region)}"
