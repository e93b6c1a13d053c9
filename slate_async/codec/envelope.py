"""The envelope of what is small: magic, format version, kind, checksum, one MessagePack map.

Layout, little-endian::

    magic 8 | format version u16 | kind u8 | reserved u8 | crc32c u32 of all other bytes | MessagePack map

The map may name ``required_features``; a release that lacks one of them refuses the whole. Fields that are not known
are kept by the decoder of the map, and written again. Each product has a magic, kinds and features of its own.

Invariant: the format version and the features are judged after the checksum, so a flipped byte is always
`CorruptionError`, and `InvalidError` always means a newer writer.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from slate_async.codec.checksum import crc32c_of_parts
from slate_async.errors import ConfigError, CorruptionError
from slate_async.types import Buffer

FEATURES = "required_features"

_START = struct.Struct("<8sHBB")
_CRC = struct.Struct("<I")
ENVELOPE_BYTES = _START.size + _CRC.size
_encoder = msgspec.msgpack.Encoder(order="deterministic")


@dataclass(frozen=True, slots=True)
class Envelope:
    """The envelopes of one product.

    owner: the product, as messages say it: ``"a collection"``
    features: those that this release has
    """

    magic: bytes
    format_version: int
    owner: str
    features: frozenset[str] = frozenset()

    def seal(self, kind: int, body: Mapping[str, Any]) -> bytes:
        """``body`` in an envelope."""
        start = _START.pack(self.magic, self.format_version, kind, 0)
        payload = pack(body)
        return b"".join((start, _CRC.pack(crc32c_of_parts((start, payload))), payload))

    def unseal(self, data: Buffer, kind: int, *, object_name: str) -> dict[str, Any]:
        """The map that `seal` was given. Raises `CorruptionError` for damaged or foreign bytes, `InvalidError` for a
        format or a required feature that this release does not know."""
        view = memoryview(data)
        if len(view) < ENVELOPE_BYTES:
            raise CorruptionError(f"{len(view)} bytes are too few", object_name=object_name)
        start, payload = view[: _START.size], view[ENVELOPE_BYTES:]
        magic, version, found, reserved = _START.unpack_from(start)
        if magic != self.magic:
            raise CorruptionError(f"it does not belong to {self.owner}", object_name=object_name)
        if _CRC.unpack_from(view, _START.size)[0] != crc32c_of_parts((start, payload)):
            raise CorruptionError("the checksum does not match", object_name=object_name, offset=_START.size)
        if version != self.format_version:
            raise ConfigError(f"{object_name} has format {version}, this release reads {self.format_version}; upgrade")
        if found != kind or reserved:
            raise CorruptionError(f"it is of kind {found}, not {int(kind)}", object_name=object_name, offset=10)
        return self.unpack(payload, object_name=object_name, offset=ENVELOPE_BYTES)

    def unpack(self, payload: Buffer, *, object_name: str, offset: int) -> dict[str, Any]:
        """The map that `pack` was given, without its features. ``payload`` was checked and lies at ``offset``.

        Raises `CorruptionError` if it is no map, `InvalidError` for a feature that this release does not have."""
        with decoding(object_name, offset):
            body = dict(msgspec.msgpack.decode(payload, type=dict[str, Any]))
            needed = frozenset(body.pop(FEATURES, ()))
        if missing := sorted(needed - self.features):
            raise ConfigError(f"{object_name} needs features this release does not have: {', '.join(missing)}; upgrade")
        return body


def pack(body: Mapping[str, Any]) -> bytes:
    """``body`` as MessagePack, equal maps as equal bytes."""
    return _encoder.encode(body)


@contextlib.contextmanager
def decoding(object_name: str, offset: int = ENVELOPE_BYTES) -> Iterator[None]:
    """Raise `CorruptionError` for what goes wrong within, while a map whose checksum is right is taken apart."""
    try:
        yield
    except (msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CorruptionError(f"it does not decode: {error}", object_name=object_name, offset=offset) from error
