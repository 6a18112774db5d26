"""Messages that say who they are: built for a send, recognised in the log.

    body = "p1/2/17/3|xxxx"   = producer / queue / number of the sub-batch / index in it, then filler

Law: a label is unique in a run, and the crc covers everything a client sent, not what the leader stamps.
Does not know: clients, histories."""

import zlib
from collections.abc import Iterator
from random import Random

from broker.ports import SendRequest
from chaos.checker import Stored
from model import properties
from model.batch import columns
from model.message import (
    BODY_AT,
    BODY_SIZE_AT,
    QUEUE_OFFSET_AT,
    STORE_MS_AT,
    SYSTEM_FLAG_AT,
    MessageView,
    build_many,
)
from model.ports import Buffer
from store.entry import ENVELOPE_BYTES, EntryKind, peek
from store.preamble import parse_preamble

TOPIC = "t"
TAGS = ("red", "green", "blue")


def make_send(
    producer: str, queue: int, number: int, bodies: list[int], random: Random, *, identity: bool
) -> tuple[SendRequest, tuple[str, ...], tuple[int, ...]]:
    """A sub-batch of messages with these body sizes, its labels and crcs."""
    labels = tuple(f"{producer}/{queue}/{number}/{index}" for index in range(len(bodies)))
    texts = [f"{label}|".encode().ljust(size, b"x") for label, size in zip(labels, bodies, strict=True)]
    pairs = {properties.TAGS: random.choice(TAGS), properties.KEYS: f"k{number} {producer}"}
    messages = build_many(TOPIC, texts, properties.encode(pairs), queue=queue, born_ms=number)
    found = columns(messages)
    crcs, at = [], 0
    for length in found.lengths.tolist():
        crcs.append(zlib.crc32(messages[at : at + length]))
        at += length
    name, sequence = (producer.encode(), number) if identity else (b"", -1)
    return SendRequest(TOPIC, queue, name, sequence, messages, found), labels, tuple(crcs)


def label_of(message: Buffer) -> str:
    """The label of a stored message."""
    size = int.from_bytes(message[BODY_SIZE_AT:BODY_AT])
    return bytes(message[BODY_AT : BODY_AT + size]).partition(b"|")[0].decode("utf-8", "replace")


def crc_as_sent(message: Buffer) -> int:
    """The crc of a message with everything zeroed that the leader stamps."""
    raw = bytearray(message)
    raw[QUEUE_OFFSET_AT:SYSTEM_FLAG_AT] = bytes(SYSTEM_FLAG_AT - QUEUE_OFFSET_AT)
    raw[STORE_MS_AT : STORE_MS_AT + 16] = bytes(16)
    return zlib.crc32(raw)


def stored_messages(log: Buffer) -> Iterator[Stored]:
    """Every message of a log that begins at position 0."""
    view, at = memoryview(log), 0
    while at < len(view):
        header = peek(view, at, at)
        if header.kind == EntryKind.DATA:
            body = view[at + ENVELOPE_BYTES : at + header.size]
            preamble = parse_preamble(body)
            place = preamble.messages_at
            for length in preamble.lengths.tolist():
                raw = body[place : place + length]
                head = MessageView(raw).head
                where = at + ENVELOPE_BYTES + place
                position = where if head.position == where else -1  # a wrong stamp is a wrong position
                yield Stored(head.queue, head.queue_offset, position, label_of(raw), crc_as_sent(raw), head.store_ms)
                place += length
        at += header.size
