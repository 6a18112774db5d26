"""Many requests, one entry: group commit in bytes.

    entry = envelope | preamble (commands, sub-batches, columns) | messages of sub-batch 1 | of sub-batch 2 ...

Law: the size is known before the position, the position before the bytes: physical offsets are stamped into the
messages, so the body is built only when the core has placed the entry.
Does not know: who waits, who leads."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from broker.ports import SendRequest
from model.batch import stamp
from store.entry import ENVELOPE_BYTES
from store.preamble import SubBatch, pack_preamble, preamble_bytes


class Composition:
    """One data entry in the making."""

    __slots__ = ("_batches", "_control", "_preamble_bytes", "_requests", "body", "size", "time_ms")

    def __init__(self, control: bytes, requests: Sequence[SendRequest], batches: Sequence[SubBatch]) -> None:
        self._control = control
        self._requests = requests
        self._batches = batches
        messages = sum(len(request.columns.lengths) for request in requests)
        keys = sum(len(request.columns.keys) for request in requests)
        self._preamble_bytes = preamble_bytes(control, batches, messages, keys)
        self.size = ENVELOPE_BYTES + self._preamble_bytes + sum(len(request.messages) for request in requests)
        self.body = bytearray()
        self.time_ms = 0

    def place(self, position: int, time_ms: int, store_host: bytes) -> list[int]:
        """Build the body for an entry at `position`; where the first message of each sub-batch lies."""
        self.time_ms = time_ms
        self.body = body = bytearray(self.size - ENVELOPE_BYTES)
        columns = [request.columns for request in self._requests]
        body[: self._preamble_bytes] = pack_preamble(
            self._control, self._batches, *(_joined([column[i] for column in columns], i) for i in range(4))
        )
        view, at, places = memoryview(body), self._preamble_bytes, []
        for request, batch in zip(self._requests, self._batches, strict=True):
            end = at + len(request.messages)
            view[at:end] = request.messages
            places.append(position + ENVELOPE_BYTES + at)
            stamp(
                view[at:end], request.columns.lengths, queue=batch.queue, first_offset=batch.first_offset,
                position=places[-1], store_ms=time_ms, store_host=store_host,
            )  # fmt: skip
            at = end
        view.release()
        return places


Column = NDArray[Any]
_DTYPES = (">u4", ">i8", "u1", ">i4")


def _joined(parts: list[Column], index: int) -> Column:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts).astype(_DTYPES[index]) if parts else np.empty(0, _DTYPES[index])
