"""Joined records in a bucket: the file, how it is signed for, and a server that refuses it."""

from __future__ import annotations

import csv
import gzip
import hashlib
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from certificates import SERVER, made
from loopback import answering

from antrea.apis.flow import FlowRecord
from antrea.config.flow_aggregator import FlowAggregatorConfig, S3Uploader
from antrea.errors import Invalid, Unavailable
from antrea.flow_aggregator.configuration import accept
from antrea.flow_aggregator.s3_output import COLUMNS, WITH_REQUESTS, S3Output, bucket_url, csv_text
from antrea.outside.tls.server_context import Certificate, server_tls

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

KEYS = {"AWS_ACCESS_KEY_ID": "key-1", "AWS_SECRET_ACCESS_KEY": "secret-1", "AWS_SESSION_TOKEN": "token-1"}


class Bucket:
    """Keeps what is PUT: path, headers, body."""

    def __init__(self) -> None:
        self.found: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 200

    async def answer(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.found.append((request.path, headers, await request.read()))
        return web.Response(status=self.status)


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """That of a server whose authority is one of the system's."""
    authority = made("authority", ca=True)
    (tmp_path / "system.pem").write_text(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    pair = made("localhost", authority, usage=SERVER, names=("localhost",))
    return server_tls(Certificate(pair.pem, pair.key_pem))


def record(port: int, name: str = "web") -> FlowRecord:
    return FlowRecord(
        flow_start_seconds=100, flow_end_seconds=110, source_ip="10.1.0.5", destination_ip="fd00::7",
        source_transport_port=port, source_pod_name=name, destination_cluster_ip="10.96.0.1",
        destination_service_ip="10.96.0.2", cluster_id="c1", egress_node_name="n1", throughput=7,
    )  # fmt: skip


@pytest.mark.parametrize("compress", [False, True])
async def test_a_file_goes_to_the_bucket_with_a_signature(tls: ssl.SSLContext, *, compress: bool) -> None:
    bucket = Bucket()
    config = S3Uploader(bucket_name="flows", bucket_prefix="/east/", region="eu-west-1", compress=compress)
    async with answering(bucket.answer, tls) as url:
        output = S3Output(config, {**KEYS, "AWS_ENDPOINT_URL": url.replace("127.0.0.1", "localhost")})
        await output.write([record(1000), record(1001)])
        bucket.status = 403
        with pytest.raises(Unavailable, match=r"localhost:\d+: PUT /flows/east/records-.*: 403 Forbidden"):
            await output.write([record(1002)])
        await output.close()
    path, headers, body = bucket.found[0]
    assert path.startswith("/flows/east/records-")
    assert path.endswith(".csv.gz" if compress else ".csv")
    assert headers["x-amz-security-token"] == "token-1"
    assert headers["x-amz-content-sha256"] == hashlib.sha256(body).hexdigest()
    assert "Credential=key-1/" in headers["authorization"]
    assert "/eu-west-1/s3/aws4_request" in headers["authorization"]
    assert "secret-1" not in str(headers)
    rows = list(csv.reader((gzip.decompress(body) if compress else body).decode().splitlines()))
    assert [row[COLUMNS.index("sourceTransportPort")] for row in rows] == ["1000", "1001"]


def test_a_line_has_the_columns_of_upstream_and_no_value_becomes_two() -> None:
    text = csv_text([record(1000, "a,b\nc")], 1234)
    [row] = csv.reader(text.splitlines(keepends=True))
    assert len(row) == len(COLUMNS) == 53
    found = dict(zip(COLUMNS, row, strict=True))
    assert (found["sourcePodName"], found["destinationServiceIP"]) == ("a,b\nc", "10.96.0.2")
    assert row[-5:] == ["c1", "1234", "", "", "n1"]
    assert csv_text([record(1000)], 0).startswith("100,110,0,0,0,10.1.0.5,fd00::7,1000,0,0,")
    assert ",'','',7,0," in csv_text([record(1000)], 0)


def test_a_line_has_labels_and_requests_where_they_are_asked_for() -> None:
    one = record(1000)
    one.source_pod_labels, one.app_protocol_name, one.http_vals = '{"app":"web","b":"c"}', "http", '{"0":{}}'
    [row] = csv.reader([csv_text([one], 1234, WITH_REQUESTS)])
    found = dict(zip(WITH_REQUESTS, row, strict=True))
    assert (found["sourcePodLabels"], found["destinationPodLabels"]) == ('\'{"app":"web","b":"c"}\'', "''")
    assert row[-4:] == ["", "http", '{"0":{}}', "n1"]
    assert "http" not in csv_text([one], 1234)


def test_where_a_bucket_is() -> None:
    config = S3Uploader(bucket_name="b")
    assert bucket_url(config, {}) == "s3://s3.us-west-2.amazonaws.com/b?region=us-west-2"
    assert bucket_url(config, {"AWS_REGION": "eu-1"}) == "s3://s3.eu-1.amazonaws.com/b?region=eu-1"
    with pytest.raises(Invalid, match=r"AWS_ENDPOINT_URL.*'http://a' is not https"):
        bucket_url(config, {"AWS_ENDPOINT_URL": "http://a"})
    with pytest.raises(Invalid, match=r"s3Uploader\.bucketName"):
        accept(FlowAggregatorConfig(s3_uploader=S3Uploader(enable=True)))


async def test_without_keys_nothing_is_sent() -> None:
    with pytest.raises(Invalid, match="Secret flow-aggregator-aws-credentials"):
        await S3Output(S3Uploader(bucket_name="b"), {}).write([record(1)])
