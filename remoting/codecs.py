"""Three ways to write a command's header: JSON and binary as RocketMQ has them, and msgpack.

    JSON     {"code":310,"extFields":{"b":"orders"},"flag":0,"language":"JAVA","opaque":7,"remark":"..","version":409}
    binary   code 2 | language 1 | version 2 | opaque 4 | flag 4 | n 4, remark | n 4, ext: (n 2, name | n 4, value)...
    msgpack  [code, language, version, opaque, flag, remark or nil, {name: value}]

Law: one command says the same in all three, with one exception that is RocketMQ's: an empty string in a binary header
is null, so an empty field does not arrive. What foreign clients leave out has Java's default; what they send as a
number or a truth value becomes text. Whatever the bytes are, `decode` gives a command or RemoteProtocolError; whatever
`encode` cannot write is a LocalProtocolError. Strings that came in can always be written out again.
Does not know: frames, bodies, which fields a request needs.
"""

import json
import re
import struct
from collections.abc import Callable
from typing import Any, Final, NoReturn

import msgpack

from model.errors import LocalProtocolError, RemoteProtocolError
from model.ports import Buffer
from remoting.codes import Codec, LanguageCode
from remoting.command import INT32_SIGN, Command, int32

EXT_FIELDS_MAX = 256  # the richest request of any client has about 25
DEPTH_MAX = 8  # of a JSON header; 2 are needed, the rest is for keys nobody knows yet
BRACKETS_USUAL = 2  # header and extFields: with no more brackets than these nothing can be deep

FIXED = struct.Struct(">h"   # code
                      "b"    # language
                      "h"    # version
                      "i"    # opaque
                      "i")   # flag
SHORT = struct.Struct(">h")
INT = struct.Struct(">i")
assert FIXED.size + 2 * INT.size == 21

PARTS = 7  # of a msgpack header

LANGUAGES = {each.name: each for each in LanguageCode}
LANGUAGES_BY_CODE: Final[dict[int, LanguageCode]] = {each.value: each for each in LanguageCode}
TEXT = {str}

_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)  # also an unterminated one: or each of its quotes would
_BRACKETS = re.compile(r"[\[\]{}]")                             # be tried as a beginning, in square time


def decode(codec: Codec, header: Buffer) -> Command:
    return DECODERS[codec](header)


def encode(command: Command) -> bytes:
    """The header's bytes, in the command's own codec."""
    if len(command.ext) > EXT_FIELDS_MAX:
        raise LocalProtocolError(f"{len(command.ext)} fields in a header; at most {EXT_FIELDS_MAX} are possible")
    try:
        return ENCODERS[command.codec](command)
    except (UnicodeEncodeError, struct.error, OverflowError) as error:
        # A surrogate without its other half; or a code above 32767, which the binary form has no room for.
        raise LocalProtocolError(f"code {command.code} cannot be written as {command.codec.name}: {error}") from None


def decode_json(header: Buffer) -> Command:
    try:
        text = str(header, "utf-8")
        if text.count("{") + text.count("[") > BRACKETS_USUAL:
            _check_depth(text)
        found = _parse_json(text)
    except ValueError as error:
        raise RemoteProtocolError(f"a JSON header cannot be read: {error}") from None
    if type(found) is not dict:
        raise RemoteProtocolError(f"a JSON header is a {type(found).__name__}, not an object")
    get = found.get
    language = get("language")
    if language is not None and type(language) is not str:
        raise RemoteProtocolError(f"a JSON header's language is a {type(language).__name__}, not a name")
    command = Command(
        _number("code", get("code")),
        LanguageCode.JAVA if language is None else LANGUAGES.get(language, LanguageCode.OTHER),
        _number("version", get("version")),
        _opaque(get("opaque")),
        _number("flag", get("flag")),
        _remark(get("remark")),
        _texts(get("extFields")),
        Codec.JSON,
    )
    if "\\ud" in text or "\\uD" in text:
        _check_surrogates(command)
    return command


def encode_json(command: Command) -> bytes:
    code, language, version, opaque, flag, remark, ext, _ = command
    remark_text = f'"remark":{_to_json(remark)},' if remark else ""
    # extFields always: Java reads those of a good answer without asking whether there are any.
    return (
        f'{{"code":{code:d},"extFields":{_to_json(ext)},"flag":{flag:d},"language":"{language.name}",'
        f'"opaque":{opaque:d},{remark_text}"version":{version:d}}}'
    ).encode()


def decode_binary(header: Buffer) -> Command:
    raw = bytes(header)
    try:
        code, language, version, opaque, flag = FIXED.unpack_from(raw)
        remark_at = FIXED.size + INT.size
        remark_end = remark_at + _size(raw, FIXED.size)
        remark = str(raw[remark_at:remark_end], "utf-8")
        ext_bytes, ext_at = _size(raw, remark_end), remark_end + INT.size
        if ext_bytes != len(raw) - ext_at:
            raise RemoteProtocolError(f"a binary header announces {ext_bytes} bytes of fields, has {len(raw) - ext_at}")
        ext = _binary_fields(raw, ext_at)
    except struct.error:
        raise RemoteProtocolError(f"a binary header of {len(raw)} bytes ends in the middle of a field") from None
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"a binary header has a text that is not UTF-8: {error.reason}") from None
    known = LANGUAGES_BY_CODE.get(language, LanguageCode.OTHER)
    return Command(code, known, version, opaque, flag, remark or None, ext, Codec.BINARY)


def _binary_fields(raw: bytes, at: int) -> dict[str, str]:
    ext, count, end = dict[str, str](), 0, len(raw)
    short, integer = SHORT.unpack_from, INT.unpack_from  # not _size: fourteen fields, twice each, in every send
    while at < end:
        (name_bytes,) = short(raw, at)
        name_at = at + SHORT.size
        name_end = name_at + name_bytes
        (value_bytes,) = integer(raw, name_end)
        value_at = name_end + INT.size
        at = value_at + value_bytes
        if name_bytes < 0 or value_bytes < 0 or at > end:
            raise RemoteProtocolError(f"a field of {name_bytes} and {value_bytes} bytes does not fit a binary header")
        if name_bytes and value_bytes:  # an empty one is null
            ext[str(raw[name_at:name_end], "utf-8")] = str(raw[value_at:at], "utf-8")
        count += 1
        if count > EXT_FIELDS_MAX:
            raise RemoteProtocolError(f"more than {EXT_FIELDS_MAX} fields in a header")
    return ext


def encode_binary(command: Command) -> bytes:
    code, language, version, opaque, flag, remark, ext, _ = command
    remark_raw = remark.encode() if remark else b""
    parts = list[bytes]()
    for name, value in ext.items():
        name_raw, value_raw = name.encode(), value.encode()
        parts += (SHORT.pack(len(name_raw)), name_raw, INT.pack(len(value_raw)), value_raw)
    fields = b"".join(parts)
    fixed = FIXED.pack(code, language, version, opaque, flag)
    return b"".join((fixed, INT.pack(len(remark_raw)), remark_raw, INT.pack(len(fields)), fields))


def decode_msgpack(header: Buffer) -> Command:
    try:
        found = msgpack.unpackb(header, max_ext_len=0, max_bin_len=0, max_map_len=EXT_FIELDS_MAX, max_array_len=PARTS)
    except (ValueError, msgpack.UnpackException) as error:
        raise RemoteProtocolError(f"a msgpack header cannot be read: {str(error) or type(error).__name__}") from None
    if type(found) is not list or len(found) != PARTS:
        raise RemoteProtocolError(f"a msgpack header is not an array of {PARTS}")
    code, language, version, opaque, flag, remark, fields = found
    ext = _texts(fields)
    if fields and b"" in fields:  # the only key besides strings that the limits let through
        raise RemoteProtocolError("a field's name in a msgpack header is bytes, not text")
    return Command(
        _number("code", code),
        LANGUAGES_BY_CODE.get(_number("language", language), LanguageCode.OTHER),
        _number("version", version),
        _opaque(opaque),
        _number("flag", flag),
        _remark(remark),
        ext,
        Codec.MSGPACK,
    )


def encode_msgpack(command: Command) -> bytes:
    code, language, version, opaque, flag, remark, ext, _ = command
    packed: bytes = msgpack.packb((code, language, version, opaque, flag, remark or None, ext))
    return packed


def _number(name: str, value: Any) -> int:
    if value is None:
        return 0
    if type(value) is not int or not -INT32_SIGN <= value < INT32_SIGN:
        raise RemoteProtocolError(f"a header's {name} is {_shown(value)}, not a 32-bit number")
    return value


def _opaque(value: Any) -> int:
    """JavaScript counts on beyond 32 bits; Java, and with it every answer, wraps."""
    if value is None:
        return 0
    if type(value) is not int:
        raise RemoteProtocolError(f"a header's opaque is {_shown(value)}, not a number")
    return int32(value)


def _remark(value: Any) -> str | None:
    if value is not None and type(value) is not str:
        raise RemoteProtocolError(f"a header's remark is {_shown(value)}, not text")
    return value or None


def _texts(fields: Any) -> dict[str, str]:
    if fields is None:
        return {}
    if type(fields) is not dict:
        raise RemoteProtocolError(f"a header's ext fields are {_shown(fields)}, not a map")
    if len(fields) > EXT_FIELDS_MAX:
        raise RemoteProtocolError(f"{len(fields)} fields in a header; at most {EXT_FIELDS_MAX} are possible")
    if TEXT.issuperset(map(type, fields.values())):
        return fields
    return {name: _text(name, value) for name, value in fields.items() if value is not None}


def _text(name: str, value: Any) -> str:
    """A field's value as Java would have written it; ali-ons sends what JavaScript had at hand."""
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    if type(value) is float and value.is_integer():
        return str(int(value))  # JavaScript writes large whole numbers as 1e21
    raise RemoteProtocolError(f"field {_shown(name)} of a header is {_shown(value)}, neither text nor a whole number")


def _shown(value: Any) -> str:
    """A stranger's value in an error message: short, whatever it is."""
    return f"{value!r:.40}" if isinstance(value, str | int | float | bytes) else f"a {type(value).__name__}"


def _size(raw: bytes, at: int) -> int:
    """A size field whose bytes are all there."""
    (size,) = INT.unpack_from(raw, at)
    if not 0 <= size <= len(raw) - at - INT.size:
        raise RemoteProtocolError(f"a text of {size} bytes in a binary header with {len(raw) - at - INT.size} left")
    return int(size)


def _check_depth(text: str) -> None:
    depth = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub("", text)):
        depth += 1 if bracket in "{[" else -1
        if depth > DEPTH_MAX:
            raise RemoteProtocolError(f"a JSON header is nested deeper than {DEPTH_MAX}")


def _check_surrogates(command: Command) -> None:
    """JSON can name half a surrogate pair; nothing else could carry it on."""
    try:
        "".join((command.remark or "", *command.ext, *command.ext.values())).encode()
    except UnicodeEncodeError as error:
        raise RemoteProtocolError(f"a JSON header has a text that is not Unicode: {error.reason}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_parse_json: Callable[[str], Any] = json.JSONDecoder(parse_constant=_refuse_constant).decode
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode

DECODERS: tuple[Callable[[Buffer], Command], ...] = (decode_json, decode_binary, decode_msgpack)
ENCODERS: tuple[Callable[[Command], bytes], ...] = (encode_json, encode_binary, encode_msgpack)
