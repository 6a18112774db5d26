"""The stored layout: byte by byte once, then through views, walks and garbage."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model import message
from model.errors import MessageIllegal
from model.properties import encode

BODIES = st.lists(st.binary(max_size=30), max_size=12)


def test_a_message_has_exactly_the_bytes_of_the_documented_layout() -> None:
    host = message.pack_host("10.0.0.7", 4567)
    raw = message.build(
        "orders",
        b"body!",
        encode({"TAGS": "red"}),
        queue=3,
        flag=9,
        system_flag=8,
        born_ms=1234,
        born_host=host,
        reconsume_times=2,
        prepared_position=77,
    )
    tail = b"\x06orders" + b"\x00\x08TAGS\x01red"
    assert raw == (
        struct.pack(">III", 91 + 5 + 6 + 8, 0xDAA320A7, zlib.crc32(b"body!") & 0x7FFFFFFF)
        + struct.pack(">iiqqiq", 3, 9, 0, 0, 8, 1234)
        + bytes([10, 0, 0, 7])
        + struct.pack(">i", 4567)
        + bytes(16)
        + struct.pack(">iqI", 2, 77, 5)
        + b"body!"
        + tail
    )


def test_a_view_shows_what_was_built() -> None:
    raw = message.build("orders", b"body!", encode({"TAGS": "red", "KEYS": "a b", "UNIQ_KEY": "U"}), queue=3)
    view = message.MessageView(b"xx" + raw, 2)
    assert (bytes(view.body), view.topic, view.tag, view.keys) == (b"body!", "orders", "red", ["U", "a", "b"])
    assert view.head.queue == 3 and bytes(view.raw) == raw and view.intact()
    assert view.id == "0" * 32
    broken = bytearray(raw)
    broken[message.BODY_AT] ^= 1
    assert not message.MessageView(broken).intact()


def test_hosts_are_ipv4_and_wide_ones_get_a_stand_in() -> None:
    assert message.host_text(message.pack_host("127.0.0.1", 10911)) == "127.0.0.1:10911"
    assert message.host_text(message.pack_host("::ffff:1.2.3.4", 5)) == "1.2.3.4:5"
    assert message.host_text(message.pack_host("fe80::1", 5)) == "0.0.0.0:5"
    assert message.message_id(message.pack_host("127.0.0.1", 10911), 255) == "7F00000100002A9F00000000000000FF"


@given(BODIES)
def test_a_walk_finds_every_message(bodies: list[bytes]) -> None:
    raw = message.build_many("t", bodies)
    assert message.walk(raw).tolist() == [92 + len(body) for body in bodies]
    assert [bytes(view.body) for view in message.views(raw)] == bodies
    assert raw == b"".join(message.build("t", body) for body in bodies)


def test_each_message_can_have_its_own_properties() -> None:
    raw = message.build_many("t", [b"1", b"2"], [encode({"TAGS": "a"}), b""])
    assert [view.tag for view in message.views(memoryview(raw))] == ["a", None]
    with pytest.raises(ValueError, match="zip"):
        message.build_many("t", [b"1", b"2"], [b""])


@given(st.binary(max_size=400))
def test_garbage_is_refused_by_walk_and_views(raw: bytes) -> None:
    for walk in (message.walk, lambda data: list(message.views(data))):
        try:
            walk(raw)
        except MessageIllegal:
            continue
        assert raw == b"" or walk is message.walk


@given(BODIES.filter(bool), st.data())
def test_views_of_a_damaged_batch_are_refused_or_stay_inside_it(bodies: list[bytes], data: st.DataObject) -> None:
    raw = bytearray(message.build_many("topic", bodies, encode({"TAGS": "x"})))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    seen = 0
    try:
        for view in message.views(raw):
            seen += len(view.raw)
            assert len(view.body) == view.head.body_size and view.topic and view.properties is not None
    except MessageIllegal:
        return
    assert seen == len(raw)


@pytest.mark.parametrize(
    "topic, properties, system_flag",
    [("", b"", 0), ("t" * 128, b"", 0), ("t", bytes(32768), 0), ("t", b"", 0x10), ("t", b"", 0x20)],
)
def test_what_the_layout_cannot_hold_is_refused(topic: str, properties: bytes, system_flag: int) -> None:
    with pytest.raises(MessageIllegal):
        message.build(topic, b"", properties, system_flag=system_flag)
