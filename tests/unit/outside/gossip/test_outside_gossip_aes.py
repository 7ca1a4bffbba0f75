"""AES-256-GCM by OpenSSL is that of `cryptography`, octet by octet, and opens nothing that was not sealed like this."""

from __future__ import annotations

import _ssl
import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antrea.outside.gossip.aes_gcm import NONCE, TAG, Cryptography, OpenSsl, cipher
from antrea.outside.gossip.crypto import Box

KEY = bytes(range(32))
OURS, OTHER = OpenSsl(KEY), Cryptography(KEY)
NONCES = st.binary(min_size=NONCE, max_size=NONCE)
TEXTS = st.binary(max_size=2000)


@given(NONCES, TEXTS, st.binary(max_size=100))
def test_what_one_seals_the_other_opens(nonce: bytes, text: bytes, header: bytes) -> None:
    sealed = OURS.encrypt(nonce, text, header)
    assert sealed == OTHER.encrypt(nonce, text, header)
    assert OURS.decrypt(nonce, sealed, header) == OTHER.decrypt(nonce, sealed, header) == text


@given(NONCES, TEXTS, st.binary(max_size=100), st.data())
def test_what_was_changed_is_not_opened_and_the_next_is(
    nonce: bytes, text: bytes, header: bytes, data: st.DataObject
) -> None:
    sealed = OURS.encrypt(nonce, text, header)
    bit = data.draw(st.integers(0, len(sealed) * 8 - 1))
    changed = bytearray(sealed)
    changed[bit // 8] ^= 1 << bit % 8
    cut = data.draw(st.integers(0, len(sealed) - 1))
    assert OURS.decrypt(nonce, bytes(changed), header) is None
    assert OURS.decrypt(nonce, sealed[:cut], header) is None
    assert OURS.decrypt(nonce, sealed, header + b"x") is None
    assert OURS.decrypt(nonce[:-1] + bytes([nonce[-1] ^ 1]), sealed, header) is None
    assert OURS.decrypt(nonce[1:], sealed, header) is None
    assert OpenSsl(KEY[::-1]).decrypt(nonce, sealed, header) is None
    assert OURS.decrypt(nonce, sealed, header) == text


def test_a_published_example_is_sealed_as_published() -> None:
    # McGrew and Viega, The Galois/Counter Mode of Operation, test case 16
    key = bytes.fromhex("feffe9928665731c6d6a8f9467308308" * 2)
    text = bytes.fromhex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
    )
    header = bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
    sealed = bytes.fromhex(
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
        "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
        "76fc6ece0f4e1768cddf8853bb2d551b"
    )
    nonce = bytes.fromhex("cafebabefacedbaddecaf888")
    for one in (OpenSsl(key), Cryptography(key)):
        assert one.encrypt(nonce, text, header) == sealed
        assert one.decrypt(nonce, sealed, header) == text


def test_where_tls_is_part_of_the_interpreter_cryptography_seals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_ssl, "__file__")
    sealed = (found := cipher(KEY)).encrypt(bytes(NONCE), b"text", b"")
    gc.collect()
    assert isinstance(found, Cryptography)
    assert sealed == OURS.encrypt(bytes(NONCE), b"text", b"")


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        cipher(bytes(size))


@pytest.mark.parametrize("size", [0, NONCE - 1, NONCE + 1, 16])
def test_a_nonce_of_another_size_seals_nothing(size: int) -> None:
    with pytest.raises(RuntimeError):
        OURS.encrypt(bytes(size), b"text", b"")


def test_a_box_seals_with_a_tag_and_opens_its_own() -> None:
    box, nonce = Box(KEY), bytes(NONCE)
    sealed = box.seal(nonce, b"", b"header")
    assert (len(sealed), box.open(nonce, sealed, b"header"), box.open(nonce, b"", b"")) == (TAG, b"", None)
