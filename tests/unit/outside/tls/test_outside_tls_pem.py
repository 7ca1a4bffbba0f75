"""PEM with words of any script between its certificates is read wherever PEM is, as Go's programs and OpenSSL do."""

from __future__ import annotations

import base64
import ssl
from typing import TYPE_CHECKING

import pytest
from certificates import SERVER, made

from antrea.errors import Invalid
from antrea.flow_aggregator.certificates import mutual_tls
from antrea.outside.apiserver.authentication import Trust
from antrea.outside.apiserver.client_certificate import issued_by
from antrea.outside.apiserver.trust import admit
from antrea.outside.kube.access import Access
from antrea.outside.kube.secret import SecretData
from antrea.outside.kube.tls_secret import pair_of
from antrea.outside.tls.client_context import client_context
from antrea.outside.tls.pem import read_pem
from antrea.outside.tls.server_context import Certificate

if TYPE_CHECKING:
    from pathlib import Path

CA = made("ca", ca=True)
OWN = made("c", CA, usage=SERVER, names=("c",))
REMARKS = ("# Zürich: 証明書\n", "\ud800 of JSON\n")
"""In one, a lone surrogate, which JSON can have and no encoding has."""


@pytest.mark.parametrize("remark", REMARKS, ids=ascii)
def test_a_bundle_with_remarks_is_trusted(remark: str) -> None:
    bundle = remark + CA.pem + remark
    server = mutual_tls(Certificate(OWN.pem, OWN.key_pem), bundle)
    front = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    admit(front, Trust(client_ca=bundle))
    access = Access("https://a", ca_pem=bundle).tls()
    assert isinstance(access, ssl.SSLContext)
    for context in (client_context(cadata=bundle), server, front, access):
        assert context.get_ca_certs(binary_form=True) == [CA.der]
    subject = issued_by(bundle, made("jane", CA).der, [])
    assert subject is not None
    assert subject.name == "jane"


def test_a_pair_with_remarks_in_a_secret_or_a_file_is_used(tmp_path: Path) -> None:
    texts = {"tls.crt": REMARKS[0] + OWN.pem, "tls.key": REMARKS[0] + OWN.key_pem}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    pair = pair_of(SecretData(data=data))
    assert pair is not None
    assert pair.certificate_pem.isascii()
    assert OWN.pem in pair.certificate_pem
    path = tmp_path / "ca.crt"
    path.write_bytes(b"\xff\xfe\n" + CA.pem.encode())
    assert CA.pem in read_pem(path)
    assert pair_of(SecretData(data={"tls.crt": "?"})) is None


@pytest.mark.parametrize("inside", ["é", "\ud800"], ids=ascii)
def test_a_bundle_whose_certificate_has_other_characters_is_refused_with_an_error_that_is_caught(
    inside: str,
) -> None:
    bundle = CA.pem.replace("\n", f"\n{inside}", 1)
    with pytest.raises(Invalid):
        mutual_tls(Certificate(OWN.pem, OWN.key_pem), bundle)
    with pytest.raises(Invalid):
        Access("https://a", ca_pem=bundle).tls()
    with pytest.raises((ssl.SSLError, ValueError)):
        client_context(cadata=bundle)
    front = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    admit(front, Trust(client_ca=bundle))
    assert (front.verify_mode, issued_by(bundle, made("jane", CA).der, [])) == (ssl.CERT_NONE, None)
