"""What a broker's registration says, read from header fields and body that anybody may have sent.

    plain       {"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{..},"topicConfigTable":{..}}}
    compressed  zlib of:  int size, data version as JSON | int count, count x (int size, "topic read write perm filter")
                          | int size, filter servers as JSON

Law: a Registration whose every part is in its bounds, or Malformed; never another exception, never more memory than
`body_bytes_max` allows, whatever a few compressed bytes swell to.
Does not know: tables, time, who may register.
"""

import ipaddress
import json
import re
import struct
import zlib
from collections.abc import Mapping
from typing import Any

from model.ids import GroupId, Incarnation, NodeId, Term
from model.ports import Buffer
from namesrv.config import RegistryConfig
from namesrv.registration import DataVersion, Malformed, Registration, Role, TopicRow, TopicTable

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")  # cluster, group, node: what a broker's configuration admits
TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
NUMBER = re.compile(r"-?[0-9]{1,19}")
ADDRESS_CHARS_MAX = 21  # 255.255.255.255:65535
INT64_MAX = 2**63 - 1
QUEUES_MAX = 65_536  # BenchmarkTest, the largest of RocketMQ's own topics, has 1024
PERM_MAX = 15  # four bits
SYS_FLAG_MAX = 3  # two bits
PORT_MAX = 65_535
CRC_MASK = 0x7FFF_FFFF  # Java's int has a sign; RocketMQ drops that bit
SIZE = struct.Struct(">i")
ROW_FIELDS = 5  # of a compressed row
SHOWN_CHARS_MAX = 64  # of a value that is quoted in an error


def parse_registration(fields: Mapping[str, object], body: Buffer, config: RegistryConfig) -> Registration:
    """REGISTER_BROKER. Beside RocketMQ's own header fields a broker of ours sends incarnation, nodeId, term, role."""
    role = _text(fields, "role")
    if role not in (known.value for known in Role):
        raise Malformed(f"role {_shown(role)} is none of leader, follower, learner")
    return Registration(
        cluster=_name(fields, "clusterName"),
        group=GroupId(_name(fields, "brokerName")),
        incarnation=Incarnation(_whole(fields, "incarnation", 1, INT64_MAX)),
        node=NodeId(_name(fields, "nodeId")),
        address=parse_address(_text(fields, "brokerAddr")),
        term=Term(_whole(fields, "term", 0, INT64_MAX)),
        role=Role(role),
        broker_id=_whole(fields, "brokerId", -1, INT64_MAX),
        topics=_parse_body(fields, body, config),
    )


def parse_address(text: str) -> str:
    """ip:port in its one usual spelling; IPv4 only, for clients take routes apart at commas and colons."""
    host, colon, port = text.partition(":") if len(text) <= ADDRESS_CHARS_MAX else ("", "", "")
    try:
        ip = ipaddress.IPv4Address(host)
    except ValueError:
        ip = None
    if ip is None or ip.is_unspecified or ip.is_multicast or not colon or NUMBER.fullmatch(port) is None:
        raise Malformed(f"address {_shown(text)} is not an IPv4 address and a port that clients could dial")
    if not 0 < int(port) <= PORT_MAX:
        raise Malformed(f"address {_shown(text)} has no port between 1 and {PORT_MAX}")
    return f"{ip}:{int(port)}"


def parse_data_version(body: Buffer, config: RegistryConfig) -> DataVersion:
    """QUERY_DATA_VERSION's body."""
    if len(body) > config.body_bytes_max:
        raise Malformed(f"a body of {len(body)} bytes is larger than {config.body_bytes_max}")
    return _data_version(_json(body, "the data version"))


def _parse_body(fields: Mapping[str, object], body: Buffer, config: RegistryConfig) -> TopicTable | None:
    if len(body) > config.body_bytes_max:
        raise Malformed(f"a registration of {len(body)} bytes is larger than {config.body_bytes_max}")
    wanted = _whole(fields, "bodyCrc32", 0, CRC_MASK) if "bodyCrc32" in fields else 0
    if wanted != 0 and wanted != zlib.crc32(body) & CRC_MASK:  # 0: the sender did not compute it
        raise Malformed("the body's checksum does not match: it was damaged on its way")
    compressed = _text(fields, "compressed") if "compressed" in fields else "false"
    if compressed not in ("true", "false"):
        raise Malformed(f"compressed is {_shown(compressed)}, neither true nor false")
    if not body:
        return None
    if compressed == "true":
        return _unpack_table(_inflate(body, config.body_bytes_max), config.topics_per_group_max)
    return _plain_table(_json(body, "the body"), config.topics_per_group_max)


def _plain_table(document: Any, topics_max: int) -> TopicTable:
    wrapper = _member(document, "topicConfigSerializeWrapper")
    version = _data_version(_member(wrapper, "dataVersion"))
    table = _member(wrapper, "topicConfigTable")
    _check_count(len(table), topics_max)
    rows = {}
    for name, config in table.items():
        if not isinstance(config, dict) or config.get("topicName", name) != name:
            raise Malformed(f"topic {_shown(name)} has no settings under its own name")
        numbers = (config.get("readQueueNums"), config.get("writeQueueNums"), config.get("perm"))
        rows[name] = _row(name, *numbers, config.get("topicSysFlag", 0))
    return TopicTable(version, rows)


def _unpack_table(raw: bytes, topics_max: int) -> TopicTable:
    at, version = _sized(raw, 0)
    at, count = _int(raw, at)
    _check_count(count, topics_max)
    rows = {}
    for _ in range(count):
        at, row = _sized(raw, at)
        parts = str(row, "utf-8", "replace").split(" ")
        if len(parts) != ROW_FIELDS or not all(map(NUMBER.fullmatch, parts[1:4])):
            raise Malformed(f"{_shown(parts[0])} is not a topic with four settings")
        name, read, write, perm, _ = parts
        if name in rows:
            raise Malformed(f"topic {_shown(name)} stands there twice")
        rows[name] = _row(name, int(read), int(write), int(perm), 0)
    at, _ = _sized(raw, at)  # filter servers: a thing of the past
    if at != len(raw):
        raise Malformed(f"{len(raw) - at} bytes follow the end of the topic table")
    return TopicTable(_data_version(_json(version, "the data version")), rows)


def _check_count(count: int, topics_max: int) -> None:
    if not 0 <= count <= topics_max:
        raise Malformed(f"a table of {count} topics is refused; up to {topics_max} are allowed")


def _row(name: str, read: Any, write: Any, perm: Any, sys_flag: Any) -> TopicRow:
    if TOPIC.fullmatch(name) is None:
        raise Malformed(f"{_shown(name)} is no topic name: letters, digits, and %|_- are, up to 127 of them")
    bounds = ((read, QUEUES_MAX), (write, QUEUES_MAX), (perm, PERM_MAX), (sys_flag, SYS_FLAG_MAX))
    if not all(type(value) is int and 0 <= value <= most for value, most in bounds):
        raise Malformed(f"topic {name} has read, write, perm, flag {_shown([read, write, perm, sys_flag])}, "
                        f"not numbers up to {', '.join(str(most) for _, most in bounds)}")
    return TopicRow(name, read, write, perm, sys_flag)


def _data_version(document: Any) -> DataVersion:
    numbers = [document.get(key) for key in ("counter", "timestamp")] if isinstance(document, dict) else [None]
    if not all(type(number) is int and 0 <= number <= INT64_MAX for number in numbers):
        raise Malformed("the data version has no counter and timestamp")
    return DataVersion(*numbers)


def _inflate(body: Buffer, bytes_max: int) -> bytes:
    """Unpacked, stopping at the limit: 4 KiB of zeros may swell to 4 MiB."""
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(body, bytes_max + 1)
    except zlib.error as error:
        raise Malformed(f"the body is not what zlib packs ({error})") from None
    if len(raw) > bytes_max:
        raise Malformed(f"the body unpacks to more than {bytes_max} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise Malformed("the packed body is cut off, or something follows it")
    return raw


def _int(raw: bytes, at: int) -> tuple[int, int]:
    if at + SIZE.size > len(raw):
        raise Malformed("the topic table is cut off")
    return at + SIZE.size, SIZE.unpack_from(raw, at)[0]


def _sized(raw: bytes, at: int) -> tuple[int, bytes]:
    at, size = _int(raw, at)
    if not 0 <= size <= len(raw) - at:
        raise Malformed(f"the topic table speaks of {size} bytes where {len(raw) - at} are left")
    return at + size, raw[at : at + size]


def _json(data: Buffer, what: str) -> Any:
    try:
        return json.loads(str(data, "utf-8"))
    except (ValueError, RecursionError):  # ValueError: not UTF-8, not JSON, a number with too many digits
        raise Malformed(f"{what} is not JSON") from None


def _member(document: Any, key: str) -> dict[str, Any]:
    found = document.get(key) if isinstance(document, dict) else None
    if not isinstance(found, dict):
        raise Malformed(f"the body has no {key}")
    return found


def _text(fields: Mapping[str, object], key: str) -> str:
    found = fields.get(key)
    if not isinstance(found, str):  # a msgpack header can hold anything
        raise Malformed(f"the header field {key} is missing" if found is None else f"the header field {key} is no text")
    return found


def _name(fields: Mapping[str, object], key: str) -> str:
    text = _text(fields, key)
    if NAME.fullmatch(text) is None:
        raise Malformed(f"{key} is {_shown(text)}: letters, digits, and _.- after the first are allowed, up to 63")
    return text


def _whole(fields: Mapping[str, object], key: str, least: int, most: int) -> int:
    text = _text(fields, key)
    if NUMBER.fullmatch(text) is None or not least <= int(text) <= most:
        raise Malformed(f"{key} is {_shown(text)}, not a whole number from {least} to {most}")
    return int(text)


def _shown(value: object) -> str:
    text = ascii(value)  # whatever it is, it must not break a log line or a terminal
    return text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "..."
