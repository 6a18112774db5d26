"""Raft messages on their way out and in: bytes are added when they leave and verified when they arrive.

Law: what a received message says about log bytes (where they end, their terms, their memberships) is read from the
verified bytes themselves; nothing of that is believed from the wire. Bytes of old segments are read and verified
beside the loop before they leave, because nobody has looked at them for long.
Does not know: what the messages mean, what happens to a damaged node."""

from collections.abc import Callable
from typing import NamedTuple

from broker.codec import decode_membership
from broker.ports import Letter, Peers
from dledger.epochs import EpochTable
from dledger.messages import Kind, Message
from model.ids import Incarnation, LogPosition, NodeId, Term
from model.ports import Buffer, Lane
from store import entry, snapshot
from store.commitlog import MAPPED_SEGMENTS, CommitLog
from store.disk import DiskError
from store.entry import CorruptEntry
from store.scan import Damage
from store.snapshot import ControlSnapshot


class Received(NamedTuple):
    """Verified bytes of an append, as the log wants them."""

    payload: Buffer
    extent: entry.Extent


def known_chain(message: Message, epochs: EpochTable, log: CommitLog) -> int | None:
    """The own chain crc where an append begins, if it begins in our log; CorruptEntry: our own log is damaged."""
    start = message.position
    if epochs.start <= start <= epochs.end and epochs.term_before(start) == message.position_term:
        return log.chain_at(start)
    return None


def read_append(message: Message, chain: int | None) -> Message:
    """What the bytes say, after verifying them; CorruptEntry when they do not verify or do not continue our chain."""
    payload, start = message.payload or b"", message.position
    assert isinstance(payload, bytes | bytearray | memoryview)
    extent = entry.inspect(payload, start, chain)
    return message._replace(
        end=LogPosition(extent.end),
        runs=tuple((Term(term), LogPosition(at)) for term, at in extent.runs),
        memberships=tuple((LogPosition(at), decode_membership(body)) for at, body in extent.memberships),
        payload=Received(payload, extent),
    )


def read_handover(message: Message) -> Message:
    """The control state that a hand-over carries, checked."""
    payload = message.payload
    assert isinstance(payload, bytes | bytearray | memoryview)
    control = snapshot.decode(bytes(payload))
    at, members = control.memberships[0]
    return message._replace(
        position=LogPosition(control.log_start),
        position_term=Term(control.base_term),
        end=LogPosition(control.position),
        memberships=((LogPosition(at), decode_membership(members)),),
        payload=control,
    )


class Poster:
    """Gives messages their bytes and sends them."""

    def __init__(
        self, node: NodeId, incarnation: Incarnation, peers: Peers, background: Lane, log: CommitLog,
        control_for: Callable[[LogPosition], ControlSnapshot], guarded: Callable[..., Callable[..., None]],
        damaged: Callable[[Damage], None],
    ) -> None:  # fmt: skip
        self._node = node
        self._incarnation = incarnation
        self._peers = peers
        self._background = background
        self._log = log
        self._control_for = control_for
        self._guarded = guarded
        self._damaged = damaged
        self._fetching: set[tuple[NodeId, Term, LogPosition]] = set()

    def post(self, message: Message) -> None:
        """Send a message; its bytes are views of the log when it is recent."""
        if message.kind is Kind.APPEND and message.end > message.position:
            if self._is_cold(message.position):
                self._fetch(message)
                return
            message = message._replace(payload=self._log.views(message.position, message.end), runs=())
        elif message.kind is Kind.HANDOVER:
            control = self._control_for(message.position)
            message = message._replace(payload=[snapshot.encode(control)], end=LogPosition(control.position))
        self._peers.send(Letter(self._node, message.target, self._incarnation, message))

    def _fetch(self, message: Message) -> None:
        """Read old bytes beside the loop, each range once at a time: a disk that is slower than the core's patience
        would otherwise be asked again and again, and get slower by that."""
        key = (message.target, message.term, message.position)
        if key in self._fetching:
            return
        self._fetching.add(key)

        def done(result: Message | Damage | Exception | None) -> None:
            self._fetching.discard(key)
            self._post_cold(result)

        self._background.submit(lambda: self._cold_bytes(message), self._guarded(done))

    def _is_cold(self, position: int) -> bool:
        size = self._log.segment_bytes
        return position // size <= self._log.end // size - MAPPED_SEGMENTS

    def _cold_bytes(self, message: Message) -> Message | Damage | None:
        reason = None
        try:
            data = self._log.read(message.position, message.end)
            entry.inspect(data, message.position)
        except CorruptEntry as error:
            reason = error.reason
        except DiskError as error:
            reason = str(error)
        if not self._log.start <= message.position < message.end <= self._log.end:
            return None  # dropped or cut meanwhile: nobody wants these bytes any more, and they are no damage
        if reason is not None:
            return Damage(message.position, reason, message.end)
        return message._replace(payload=[data], runs=())

    def _post_cold(self, result: Message | Damage | Exception | None) -> None:
        if isinstance(result, Exception):
            raise result  # not a disk error: our own broken promise
        if isinstance(result, Damage):
            self._damaged(result)
        elif result is not None:
            self._peers.send(Letter(self._node, result.target, self._incarnation, result))
