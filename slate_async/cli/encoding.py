"""How keys and values are written on a command line, in a terminal and in JSON.

Invariant: nothing printed to people holds a control character that was stored in a database, so no stored bytes
can drive the terminal; and what is printed for one value is never what is printed for another.
"""

from __future__ import annotations

import base64
import binascii
from enum import Enum

from slate_async.errors import InvalidError


class Encoding(Enum):
    """The notation of keys and values in arguments and output."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"


def encoding_of(*, hexadecimal: bool, base64_: bool) -> Encoding:
    """The encoding that the options ``--hex`` and ``--base64`` choose. Raises `InvalidError` for both."""
    if hexadecimal and base64_:
        raise InvalidError("--hex and --base64 exclude each other")
    if hexadecimal:
        return Encoding.HEX
    return Encoding.BASE64 if base64_ else Encoding.TEXT


def parse(text: str, encoding: Encoding, *, what: str) -> bytes:
    """The bytes an argument stands for. Raises `InvalidError` naming ``what`` if it is malformed.

    Text is UTF-8; bytes of the command line that are not UTF-8 are taken as they are."""
    if encoding is Encoding.TEXT:
        return text.encode("utf-8", "surrogateescape")
    try:
        if encoding is Encoding.HEX:
            return bytes.fromhex(text)
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise InvalidError(f"{what} is not {encoding.value}: {error}") from error


def show(data: bytes, encoding: Encoding, charset: str = "utf-8") -> str:
    """``data`` for people: printable UTF-8 as it is, anything else as a Python bytes literal; so is text that looks
    like one, or that the output's ``charset`` cannot write."""
    if encoding is Encoding.HEX:
        return data.hex()
    if encoding is Encoding.BASE64:
        return base64.b64encode(data).decode("ascii")
    text = _text(data)
    if text is None or not text.isprintable() or text.startswith(("b'", 'b"')) or not _writable(text, charset):
        return repr(data)
    return text


def _writable(text: str, charset: str) -> bool:
    try:
        text.encode(charset)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def json_field(name: str, data: bytes, encoding: Encoding) -> tuple[str, str]:
    """Name and value of a JSON member: ``name`` itself for the chosen notation, ``name_base64`` where text was
    wanted but the bytes are not UTF-8."""
    if encoding is not Encoding.TEXT:
        return name, show(data, encoding)
    text = _text(data)
    return (f"{name}_base64", base64.b64encode(data).decode("ascii")) if text is None else (name, text)


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
