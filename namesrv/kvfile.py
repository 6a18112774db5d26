"""One small file that is replaced whole, atomically and durably: the real keeper of the dictionary.

    write name.tmp -> fsync -> rename over name -> fsync of the directory

Law: a reader finds the old bytes or the new ones, also after a power cut. A failure before the rename changed nothing
(Refused); one after it left the new bytes in place but perhaps not for ever (OutcomeUnknown).
Does not know: what the bytes mean.
"""

import os
from pathlib import Path
from typing import Protocol

from model.errors import OutcomeUnknown, Refused, StartError


class Keeper(Protocol):
    """Where the dictionary's bytes are kept between two lives of the process."""

    def load(self) -> bytes | None:
        """What was saved last; None when nothing ever was."""

    def save(self, data: bytes) -> None:
        """Return when `data` is durable in place of what was there; MQError when it is not."""


class AtomicFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = path.with_name(path.name + ".tmp")

    def load(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StartError(
                f"{self._path} cannot be read: {error.strerror}", means="the settings in it would be missing",
                do="check that it is a file which this process may read",
            ) from None

    def save(self, data: bytes) -> None:
        try:
            self._write_draft(data)
        except OSError as error:
            raise Refused(
                f"{self._draft} cannot be written: {error.strerror}", do="check the disk and the directory's owner"
            ) from None
        try:
            os.replace(self._draft, self._path)
            self._sync_directory()
        except OSError as error:
            raise OutcomeUnknown(f"{self._path} could not be put in place durably: {error.strerror}") from None

    def _write_draft(self, data: bytes) -> None:
        with open(self._draft, "wb") as draft:  # what an earlier life left half-written is overwritten
            draft.write(data)
            draft.flush()
            os.fsync(draft.fileno())

    def _sync_directory(self) -> None:
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
