"""Registrations from anybody: the two body forms, and everything that can be wrong with them."""

import json
import struct
import tracemalloc
import zlib
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import MQError
from model.ports import Buffer
from namesrv.config import RegistryConfig
from namesrv.parsing import parse_address, parse_data_version, parse_registration
from namesrv.registration import DataVersion, Malformed, Registration, Role, TopicRow, TopicTable

CONFIG = RegistryConfig(topics_per_group_max=3, body_bytes_max=4096)
FIELDS: dict[str, object] = {
    "brokerName": "b0", "brokerAddr": "10.0.0.1:10911", "clusterName": "c", "haServerAddr": "", "brokerId": "0",
    "incarnation": "77", "nodeId": "n0", "term": "5", "role": "leader",
}
VERSION = {"counter": 3, "timestamp": 1700000000000}
TOPIC: dict[str, Any] = {
    "order": False, "perm": 6, "readQueueNums": 8, "topicFilterType": "SINGLE_TAG", "topicName": "t",
    "topicSysFlag": 0, "writeQueueNums": 4,
}
TABLE = TopicTable(DataVersion(3, 1700000000000), {"t": TopicRow("t", 8, 4, 6)})


def plain(table: Any = None, version: Any = VERSION) -> bytes:
    wrapper = {"dataVersion": version, "topicConfigTable": {"t": TOPIC} if table is None else table}
    return json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}).encode()


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def table_bytes(*rows: bytes, count: int | None = None, filters: bytes = b"[]") -> bytes:
    counted = struct.pack(">i", len(rows) if count is None else count)
    return sized(json.dumps(VERSION).encode()) + counted + b"".join(map(sized, rows)) + sized(filters)


def parse(body: Buffer, **fields: object) -> Registration:
    return parse_registration({**FIELDS, **fields}, body, CONFIG)


def test_a_plain_registration_is_read_whole() -> None:
    found = parse(plain())
    assert found.topics == TABLE
    assert found[:8] == ("c", "b0", 77, "n0", "10.0.0.1:10911", 5, Role.LEADER, 0)


def test_a_compressed_registration_says_the_same() -> None:
    body = zlib.compress(table_bytes(b"t 8 4 6 SINGLE_TAG"))
    assert parse(body, compressed="true").topics == TABLE
    assert parse(memoryview(body), compressed="true").topics == TABLE


@pytest.mark.parametrize("compressed", ["true", "false"])
def test_a_registration_without_a_body_says_nothing_of_topics(compressed: str) -> None:
    assert parse(b"", compressed=compressed, role="follower", brokerId="2").topics is None


def test_the_checksum_covers_the_body_as_it_travelled_and_0_means_unchecked() -> None:
    body = zlib.compress(table_bytes(b"t 8 4 6 SINGLE_TAG"))
    right = zlib.crc32(body) & 0x7FFFFFFF
    for crc in (right, 0):
        assert parse(body, compressed="true", bodyCrc32=str(crc)).topics == TABLE
    with pytest.raises(Malformed, match="damaged on its way"):
        parse(body, compressed="true", bodyCrc32=str(right ^ 1))


def test_a_body_that_swells_is_stopped_at_the_limit() -> None:
    bomb = zlib.compress(bytes(20_000_000), 1)
    with pytest.raises(Malformed, match="larger than 4096"):
        parse(bomb, compressed="true")
    small = zlib.compress(bytes(2_000_000), 9)
    assert len(small) < CONFIG.body_bytes_max
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="unpacks to more than 4096"):
            parse(small, compressed="true")
        assert tracemalloc.get_traced_memory()[1] < 200_000, "it was unpacked whole before it was measured"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"[]", b"null", b"{}", b"\xff", b'{"topicConfigSerializeWrapper":[]}', b"[" * 4000, b"9" * 4096,
        plain(version=None), plain(version={"counter": -1, "timestamp": 0}), plain(version={"counter": True}),
        plain(version={"counter": 2**63, "timestamp": 0}), plain(table=[]), plain(table={"t": None}),
        plain(table={"t": {**TOPIC, "topicName": "u"}}), plain(table={"../x": {**TOPIC, "topicName": "../x"}}),
        plain(table={"": {**TOPIC, "topicName": ""}}), plain(table={"t": {**TOPIC, "perm": 16}}),
        plain(table={"t": {**TOPIC, "perm": "6"}}), plain(table={"t": {**TOPIC, "readQueueNums": -1}}),
        plain(table={"t": {**TOPIC, "writeQueueNums": 1e3}}), plain(table={"t": {**TOPIC, "readQueueNums": True}}),
        plain(table={"t": {**TOPIC, "topicSysFlag": 4}}), plain(table={"t": {"topicName": "t"}}),
        plain(table={f"t{n}": {**TOPIC, "topicName": f"t{n}"} for n in range(4)}),
        plain(table={"\ud800": {**TOPIC, "topicName": "\ud800"}}), bytes(4097),
    ],
)
def test_a_plain_body_that_makes_no_sense_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        parse(body)


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"\0", table_bytes()[:-1], table_bytes() + b"x", table_bytes(count=1), table_bytes(count=-1),
        table_bytes(count=2**31 - 1), table_bytes(b"t 8 4 6"), table_bytes(b"t 8 4 x SINGLE_TAG"),
        table_bytes(b"t 8 4 -6 SINGLE_TAG"), table_bytes(b"t  8 4 6 SINGLE_TAG"), table_bytes(b"\xff 8 4 6 SINGLE_TAG"),
        table_bytes(b"t 8 4 6 S", b"t 8 4 6 S"), table_bytes(*(b"t%d 8 4 6 S" % n for n in range(4))),
        struct.pack(">i", -5) + b"....", struct.pack(">i", 2**31 - 1) + b"....", sized(b"{") + table_bytes()[45:],
        table_bytes(b"t " + b"9" * 500 + b" 4 6 S"),
    ],
)
def test_a_compressed_body_that_makes_no_sense_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        parse(zlib.compress(raw), compressed="true")


PACKED = zlib.compress(table_bytes(b"t 8 4 6 SINGLE_TAG"))


@pytest.mark.parametrize("body", [PACKED[:-3], PACKED + b"x", b"x" + PACKED, PACKED[:5] + bytes(9), PACKED + PACKED])
def test_a_damaged_zlib_stream_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        parse(body, compressed="true")


@pytest.mark.parametrize(
    "field, value",
    [
        *product(("brokerName", "clusterName", "nodeId"), ("", "../x", "a b", "x" * 64, "a\n")),
        *product(("term", "incarnation", "brokerId"), ("", "x", "1.0", "-2", "9" * 400, "\u0663")),
        ("incarnation", "0"), ("role", "candidate"), ("role", ""), ("compressed", "yes"), ("bodyCrc32", "-1"),
        ("brokerAddr", "localhost:1"), ("term", 5), ("compressed", True), ("nodeId", b"n0"), ("brokerAddr", None),
    ],
)
def test_a_header_field_that_makes_no_sense_is_malformed_and_named_safely(field: str, value: object) -> None:
    with pytest.raises(Malformed) as caught:
        parse(plain(), **{field: value})
    assert len(str(caught.value)) < 400 and str(caught.value).isprintable()


@pytest.mark.parametrize("field", sorted(set(FIELDS) - {"haServerAddr"}))
def test_a_missing_header_field_is_named(field: str) -> None:
    with pytest.raises(Malformed, match=field):
        parse_registration({key: value for key, value in FIELDS.items() if key != field}, plain(), CONFIG)


@pytest.mark.parametrize(
    "text",
    ["", ":", "10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1:1:2", "[::1]:80", "::1",
     "0.0.0.0:80", "224.0.0.1:80", "10.0.0.256:80", "10.0.0.01:80", "10.0.0.1 :80", "10.0.0.1:8 0", "1,2:3", "host:80"],
)
def test_an_address_that_no_client_could_dial_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        parse_address(text)


def test_an_address_has_one_spelling() -> None:
    assert parse_address("127.0.0.1:010911") == parse_address("127.0.0.1:10911") == "127.0.0.1:10911"
    assert parse_address("255.255.255.255:65535")


def test_a_data_version_is_read_or_malformed() -> None:
    assert parse_data_version(json.dumps(VERSION).encode(), CONFIG) == DataVersion(3, 1700000000000)
    for body in (b"", b"[]", b"{}", b" " * 5000):
        with pytest.raises(Malformed):
            parse_data_version(body, CONFIG)


@given(st.data())
def test_no_spoiled_registration_raises_anything_but_an_mq_error(data: st.DataObject) -> None:
    packed = data.draw(st.booleans())
    raw = bytearray(table_bytes(b"t 8 4 6 S", b"u 1 1 2 S") if packed else plain())
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    body = zlib.compress(bytes(raw)) if packed else bytes(raw)
    try:
        found = parse(body, compressed=str(packed).lower())
    except MQError:
        return
    assert found.topics is None or len(found.topics.rows) <= CONFIG.topics_per_group_max
