"""AES-256-GCM by the OpenSSL that this interpreter's TLS has loaded already, or else by `cryptography`.

The library of `cryptography` brings an OpenSSL of its own: 8 MiB and 40 ms of every agent, for one cipher.
Source: EVP_EncryptInit(3), AEAD INTERFACE
"""

from __future__ import annotations

import _ssl
import ctypes
from typing import Protocol

NONCE, TAG = 12, 16
"""Bytes of them."""
_GET_TAG, _SET_TAG = 0x10, 0x11
_POINTER, _INT, _BYTES = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_LENGTH = ctypes.POINTER(_INT)
_FUNCTIONS = {
    "EVP_aes_256_gcm": (_POINTER, ()),
    "EVP_CIPHER_CTX_new": (_POINTER, ()),
    "EVP_CIPHER_CTX_free": (None, (_POINTER,)),
    "EVP_CIPHER_CTX_ctrl": (_INT, (_POINTER, _INT, _INT, _BYTES)),
    "EVP_EncryptInit_ex": (_INT, (_POINTER, _POINTER, _POINTER, _BYTES, _BYTES)),
    "EVP_EncryptUpdate": (_INT, (_POINTER, _BYTES, _LENGTH, _BYTES, _INT)),
    "EVP_EncryptFinal_ex": (_INT, (_POINTER, _BYTES, _LENGTH)),
    "EVP_DecryptInit_ex": (_INT, (_POINTER, _POINTER, _POINTER, _BYTES, _BYTES)),
    "EVP_DecryptUpdate": (_INT, (_POINTER, _BYTES, _LENGTH, _BYTES, _INT)),
    "EVP_DecryptFinal_ex": (_INT, (_POINTER, _BYTES, _LENGTH)),
}


class Cipher(Protocol):
    """Encrypts with a tag at the end, over what is sent beside it, too."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes:
        """The encrypted data with its tag."""

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes | None:
        """The data, or None if its tag is another one."""


def cipher(key: bytes) -> Cipher:
    """A cipher under these 32 bytes."""
    if len(key) != 32:
        raise ValueError(f"a key of AES-256 has 32 bytes, not {len(key)}")
    try:
        return OpenSsl(key)
    except (AttributeError, OSError):
        return Cryptography(key)


class OpenSsl:
    """Two contexts with the key scheduled; 13 us to seal and open, where `cryptography` takes 3: of some 40 packets a second."""

    def __init__(self, key: bytes) -> None:
        """Raises AttributeError or OSError if TLS does not come as a library."""
        self._contexts: tuple[int, ...] = ()
        # symbols are looked up in what the extension module was linked with; calls keep the interpreter's lock
        library = ctypes.PyDLL(_ssl.__file__)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        self._library = library
        self._seal, self._open = library.EVP_CIPHER_CTX_new(), library.EVP_CIPHER_CTX_new()
        self._contexts = (self._seal, self._open)
        if not all(self._contexts):
            raise MemoryError("a context of OpenSSL")
        kind = library.EVP_aes_256_gcm()
        _done(library.EVP_EncryptInit_ex(self._seal, kind, None, key, None))
        _done(library.EVP_DecryptInit_ex(self._open, kind, None, key, None))

    def __del__(self) -> None:
        for context in self._contexts:
            self._library.EVP_CIPHER_CTX_free(context)

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes:
        """The encrypted data with its tag."""
        library, context, length = self._library, self._seal, _INT()
        out, tag = ctypes.create_string_buffer(len(data) + TAG), ctypes.create_string_buffer(TAG)
        _done(len(nonce) == NONCE)
        _done(library.EVP_EncryptInit_ex(context, None, None, None, nonce))
        _done(library.EVP_EncryptUpdate(context, None, length, associated_data, len(associated_data)))
        _done(library.EVP_EncryptUpdate(context, out, length, data, len(data)))
        _done(length.value == len(data))
        _done(library.EVP_EncryptFinal_ex(context, tag, length))
        _done(library.EVP_CIPHER_CTX_ctrl(context, _GET_TAG, TAG, tag))
        return out.raw[: len(data)] + tag.raw

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes | None:
        """The data, or None if its tag is another one."""
        library, context, length = self._library, self._open, _INT()
        if len(nonce) != NONCE or len(data) < TAG:
            return None
        text, tag = data[:-TAG], data[-TAG:]
        out = ctypes.create_string_buffer(len(text) + TAG)
        _done(library.EVP_DecryptInit_ex(context, None, None, None, nonce))
        _done(library.EVP_DecryptUpdate(context, None, length, associated_data, len(associated_data)))
        _done(library.EVP_DecryptUpdate(context, out, length, text, len(text)))
        _done(length.value == len(text))
        _done(library.EVP_CIPHER_CTX_ctrl(context, _SET_TAG, TAG, tag))
        if library.EVP_DecryptFinal_ex(context, ctypes.create_string_buffer(TAG), length) != 1:
            return None
        return out.raw[: len(text)]


class Cryptography:
    """For interpreters whose TLS does not come as a library."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 (8 MiB)

        self._cipher = AESGCM(key)

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes:
        """The encrypted data with its tag."""
        return self._cipher.encrypt(nonce, data, associated_data)

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes | None:
        """The data, or None if its tag is another one."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 (8 MiB)

        try:
            return self._cipher.decrypt(nonce, data, associated_data)
        except (InvalidTag, ValueError):
            return None


def _done(result: int) -> None:
    if result != 1:
        raise RuntimeError("OpenSSL refuses AES-256-GCM")
