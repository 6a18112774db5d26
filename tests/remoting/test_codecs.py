"""Header codecs: bytes written by hand, round trips, equality between codecs, limits and hostile bytes."""

import json
import random
import struct

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import LocalProtocolError, RemoteProtocolError, ResponseCode
from remoting.codecs import EXT_FIELDS_MAX, decode, encode
from remoting.codes import Codec, LanguageCode, RequestCode
from remoting.command import Command, answer, int32, request

GOLDEN = Command(310, LanguageCode.GO, 317, 7, 0, "no", {"b": "T", "e": "-1"}, Codec.JSON)
GOLDEN_JSON = (
    b'{"code":310,"extFields":{"b":"T","e":"-1"},"flag":0,"language":"GO","opaque":7,"remark":"no","version":317}'
)
GOLDEN_BINARY = bytes.fromhex(
    "0136"  # code
    "09"  # language
    "013d"  # version
    "00000007"  # opaque
    "00000000"  # flag
    "00000002 6e6f"  # remark
    "00000011"  # 17 bytes of fields
    "0001 62 00000001 54"
    "0001 65 00000002 2d31"
)
GOLDEN_MSGPACK = bytes.fromhex("97 cd0136 09 cd013d 07 00 a26e6f 82 a162 a154 a165 a22d31")

INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
COMMANDS = st.builds(
    Command,
    INT16,
    st.sampled_from(LanguageCode),
    INT16,
    INT32,
    INT32,
    st.none() | TEXT,
    st.dictionaries(TEXT, TEXT, max_size=6),
    st.sampled_from(Codec),
)


def json_header(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def refusal(codec: Codec, header: bytes) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(codec, header)
    return caught.value.happened


@pytest.mark.parametrize("codec, raw", [*zip(Codec, [GOLDEN_JSON, GOLDEN_BINARY, GOLDEN_MSGPACK], strict=True)])
def test_bytes_written_by_hand(codec: Codec, raw: bytes) -> None:
    command = GOLDEN._replace(codec=codec)
    assert encode(command) == raw
    assert decode(codec, memoryview(raw)) == command


@given(COMMANDS)
def test_one_command_says_the_same_in_all_codecs(command: Command) -> None:
    for codec in Codec:
        written = command._replace(codec=codec)
        assert decode(codec, encode(written)) == written


def test_what_a_json_header_leaves_out_has_javas_default() -> None:
    default = Command(0, LanguageCode.JAVA, 0, 0, 0, None, {}, Codec.JSON)
    assert decode(Codec.JSON, b"{}") == default
    nulls = dict.fromkeys(["code", "language", "version", "opaque", "flag", "remark", "extFields", "x"])
    assert decode(Codec.JSON, json_header(**nulls)) == default
    assert decode(Codec.JSON, b' {"serializeTypeCurrentRPC":"JSON","remark":"","new":{"a":[1]}} ') == default


def test_values_that_are_not_text_become_the_text_java_would_have_sent() -> None:
    # ali-ons sends what JavaScript has: numbers, truth values, null.
    raw = b'{"extFields":{"a":true,"b":false,"c":null,"d":-5,"e":1e21,"f":"1","g":12345678901234567,"h":""}}'
    ext = {"a": "true", "b": "false", "d": "-5", "e": "1" + "0" * 21, "f": "1", "g": "12345678901234567", "h": ""}
    assert decode(Codec.JSON, raw).ext == ext
    assert decode(Codec.MSGPACK, msgpack.packb([0, 0, 0, 0, 0, None, {"a": True, "c": None, "d": 1}])).ext == {
        "a": "true",
        "d": "1",
    }


def test_an_empty_string_in_a_binary_header_is_null_and_does_not_arrive() -> None:
    command = GOLDEN._replace(remark="", ext={"a": "", "b": "x", "": "nameless"})
    found = decode(Codec.BINARY, encode(command._replace(codec=Codec.BINARY)))
    assert found.remark is None and found.ext == {"b": "x"}
    for codec in (Codec.JSON, Codec.MSGPACK):
        found = decode(codec, encode(command._replace(codec=codec)))
        assert found.remark is None and found.ext == command.ext


def test_unknown_languages_are_other() -> None:
    assert decode(Codec.JSON, json_header(language="KLINGON")).language is LanguageCode.OTHER
    assert decode(Codec.BINARY, b"\0\0\x7f" + bytes(18)).language is LanguageCode.OTHER
    assert decode(Codec.MSGPACK, msgpack.packb([0, 99, 0, 0, 0, None, {}])).language is LanguageCode.OTHER


@pytest.mark.parametrize("value, wrapped", [(2**31, -(2**31)), (2**32 + 5, 5), (-(2**31) - 1, 2**31 - 1), (-7, -7)])
def test_opaque_wraps_like_a_java_int(value: int, wrapped: int) -> None:
    assert int32(value) == wrapped == request(10, value).opaque
    assert decode(Codec.JSON, json_header(opaque=value)).opaque == wrapped
    assert decode(Codec.MSGPACK, msgpack.packb([0, 0, 0, value, 0, None, None])).opaque == wrapped


def test_a_code_is_a_short_in_a_binary_header() -> None:
    pop = request(200050, 1)
    assert decode(Codec.JSON, encode(pop)).code == 200050
    with pytest.raises(LocalProtocolError, match="code 200050 cannot be written as BINARY"):
        encode(pop._replace(codec=Codec.BINARY))


@pytest.mark.parametrize("codec", Codec)
def test_an_answer_mirrors_its_request(codec: Codec) -> None:
    asked = request(RequestCode.GET_MAX_OFFSET, -9, {"topic": "t"}, codec=codec, language=LanguageCode.CPP)
    told = answer(asked, ResponseCode.TOPIC_NOT_EXIST, "no topic", {"a": "b"})
    assert told == Command(17, LanguageCode.JAVA, 409, -9, 1, "no topic", {"a": "b"}, codec)
    assert told.is_answer and not asked.is_answer and not told.is_oneway
    assert request(15, 1, oneway=True).flag == 2 and request(15, 1, oneway=True).is_oneway
    assert decode(codec, encode(told)) == told
    assert answer(asked, 0, "").remark is None
    assert answer(asked._replace(flag=2), 0).flag == 1


def test_an_answer_always_has_ext_fields_because_java_does_not_ask() -> None:
    assert b'"extFields":{}' in encode(answer(request(34, 1), 0)) and b"remark" not in encode(answer(request(34, 1), 0))


@pytest.mark.parametrize(
    "header, says",
    [
        (b"", "cannot be read"),
        (b"[]", "is a list, not an object"),
        (b"\xff{}", "cannot be read"),
        ('{"a":1}'.encode("utf-16"), "cannot be read"),
        (b'{"code":"10"}', "code is '10', not a 32-bit number"),
        (b'{"code":true}', "code is True"),
        (b'{"code":1.5}', "code is 1.5"),
        (b'{"flag":2147483648}', "flag is 2147483648"),
        (b'{"version":' + b"9" * 5000 + b"}", "cannot be read"),
        (b'{"opaque":[1]}', "opaque is a list"),
        (b'{"language":3}', "language is a int"),
        (b'{"remark":{}}', "remark is a dict"),
        (b'{"extFields":[]}', "ext fields are a list"),
        (b'{"extFields":{"a":{"b":"c"}}}', "field 'a' of a header is a dict"),
        (b'{"extFields":{"a":[]}}', "field 'a'"),
        (b'{"extFields":{"a":1.5}}', "field 'a' of a header is 1.5"),
        (b'{"extFields":{"a":1e999}}', "field 'a' of a header is inf"),
        (b'{"extFields":{"a":NaN}}', "NaN is not JSON"),
        (b'{"extFields":{"a":"\\ud800"}}', "not Unicode"),
        (b'{"remark":"\\uDC00"}', "not Unicode"),
        (b'{"x":' + b"[" * 100_000, "nested deeper than 8"),
        (b'{"x":' * 50_000, "nested deeper than 8"),
        (b'{"x":[{},"' + b'\\"' * 100_000, "cannot be read"),  # in linear time
    ],
)
def test_a_bad_json_header_is_refused_with_its_reason(header: bytes, says: str) -> None:
    assert says in refusal(Codec.JSON, header)


def test_brackets_inside_texts_are_not_nesting_and_pairs_of_surrogates_are_text() -> None:
    raw = b'{"extFields":{"a":"{[{[{[{[{[{[\\"{[{[{[","b":"\\ud83d\\ude00"}}'
    assert decode(Codec.JSON, raw).ext == {"a": '{[{[{[{[{[{["{[{[{[', "b": "\U0001f600"}


@pytest.mark.parametrize(
    "header, says",
    [
        (b"", "of 0 bytes ends in the middle"),
        (bytes(20), "of 20 bytes ends in the middle"),
        (bytes(22), "announces 0 bytes of fields, has 1"),
        (bytes(13) + b"\xff\xff\xff\xff" + bytes(4), "a text of -1 bytes"),
        (bytes(13) + b"\x7f\xff\xff\xff" + bytes(4), "a text of 2147483647 bytes"),
        (bytes(17) + b"\x00\x00\x00\x07" + b"\xff\xff" + bytes(5), "a field of -1 and"),
        (bytes(17) + b"\x00\x00\x00\x07" + b"\xff\xfa" + bytes(5), "a field of -6 and 7 bytes"),  # back to 00000007
        (bytes(17) + b"\x00\x00\x00\x07" + b"\x00\x01a\x00\x00\x00\x01", "a field of 1 and 1 bytes"),
        (bytes(17) + b"\x00\x00\x00\x07" + b"\x00\x01a\xff\xff\xff\xff", "a field of 1 and -1 bytes"),
        (bytes(17) + b"\x00\x00\x00\x02" + b"\x7f\xff", "ends in the middle"),
        (bytes(17) + b"\x00\x00\x00\x08" + b"\x00\x01\xff\x00\x00\x00\x01a", "not UTF-8"),
    ],
)
def test_a_bad_binary_header_is_refused_with_its_reason(header: bytes, says: str) -> None:
    assert says in refusal(Codec.BINARY, header)


@pytest.mark.parametrize(
    "header, says",
    [
        (b"", "cannot be read"),
        (b"\x91" * 100_000, "cannot be read"),  # deep
        (b"\xdd\xff\xff\xff\xff", "cannot be read"),  # an array of 4 Gi
        (b"\x96" + bytes(6), "not an array of 7"),
        (GOLDEN_MSGPACK + b"\0", "cannot be read"),
        (msgpack.packb([0, 0, 0, 0, 0, None, {1: "a"}]), "cannot be read"),
        (msgpack.packb([0, 0, 0, 0, 0, None, {b"": "a"}]), "is bytes, not text"),
        (msgpack.packb([0, 0, 0, 0, 0, None, {"a": b""}]), "field 'a' of a header is b''"),
        (msgpack.packb([0, 0, 0, 0, 0, None, []]), "ext fields are a list"),
        (msgpack.packb([0, 0, 0, 0, 0, b"", {}]), "remark is b''"),
        (msgpack.packb([0, 0, 0, 0, 0, msgpack.ExtType(1, b"x"), {}]), "cannot be read"),
        (msgpack.packb([0, 0, 0, 0, 0, msgpack.Timestamp(1), {}]), "cannot be read"),
        (msgpack.packb([2**40, 0, 0, 0, 0, None, {}]), "code is 1099511627776"),
        (msgpack.packb([0, "JAVA", 0, 0, 0, None, {}]), "language is 'JAVA'"),
    ],
)
def test_a_bad_msgpack_header_is_refused_with_its_reason(header: bytes, says: str) -> None:
    assert says in refusal(Codec.MSGPACK, header)


@pytest.mark.parametrize("codec", Codec)
def test_the_number_of_fields_has_a_limit_both_ways(codec: Codec) -> None:
    full = request(10, 1, {f"f{i:04}": "x" for i in range(EXT_FIELDS_MAX)}, codec=codec)
    assert decode(codec, encode(full)) == full
    over = full._replace(ext={**full.ext, "one": "more"})
    with pytest.raises(LocalProtocolError, match="257 fields"):
        encode(over)
    field = struct.pack(">h5si1s", 5, b"f0000", 1, b"x")  # the same name again and again counts too
    raw = {
        Codec.JSON: json_header(extFields=over.ext),
        Codec.BINARY: bytes(17) + struct.pack(">i", len(field) * 257) + field * 257,
        Codec.MSGPACK: msgpack.packb([0, 0, 0, 0, 0, None, over.ext]),
    }[codec]
    refusal(codec, raw)


@pytest.mark.parametrize("codec", Codec)
def test_what_cannot_be_written_is_a_local_error(codec: Codec) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be written"):
        encode(request(10, 1, {"a": "\ud800"}, codec=codec))


@pytest.mark.parametrize("codec", Codec)
def test_hostile_bytes_give_a_command_that_can_be_written_again_or_the_remote_error(codec: Codec) -> None:
    chance = random.Random(11)
    good = encode(GOLDEN._replace(codec=codec))
    for _ in range(3000):
        if chance.random() < 0.3:
            raw = chance.randbytes(chance.randrange(60))
        else:
            mutant = bytearray(good)
            for _ in range(chance.randrange(1, 4)):
                mutant[chance.randrange(len(mutant))] = chance.randrange(256)
            raw = bytes(mutant[: chance.randrange(len(mutant)) if chance.random() < 0.2 else None])
        try:
            command = decode(codec, raw)
        except RemoteProtocolError:
            continue
        assert decode(codec, encode(command)) == command
        encode(answer(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {command.code} not supported"))
