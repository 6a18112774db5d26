"""Committed entries come into force: state, consume queues, key index.

    commit position ---> entries below it, in order ---> StateMachine.apply, Derived.dispatch ---> applied

Law: an entry is verified again before it is applied, applied once and in order; work per turn is bounded. Control
state that came by snapshot may be ahead of the log: entries below its position are only dispatched, their commands
are not applied again.
Does not know: who leads, who waits."""

from broker.state.machine import Diverged, StateMachine
from store.commitlog import CommitLog
from store.derived import Derived
from store.entry import CorruptEntry, EntryKind, Header
from store.hardstate import DamagedState
from store.preamble import parse_preamble
from store.snapshot import ControlSnapshot

APPLY_BYTES_MAX = 4 << 20  # per turn, so that heartbeats are never late


class WrongDerived(Exception):
    """A queue or index file does not end where the log goes on: it must be built anew."""


class Applier:
    """Owns what is derived from committed bytes."""

    def __init__(
        self, log: CommitLog, derived: Derived, state: StateMachine, applied: int, control: ControlSnapshot | None
    ) -> None:
        self._log = log
        self._derived = derived
        self.state = state
        self.applied = applied
        self.time_ms = 0 if control is None else control.time_ms  # leader time of the last applied entry

    def advance(self, commit: int) -> bool:
        """Apply up to `commit` or to the bound; True when some is left. CorruptEntry: the log is damaged."""
        if self.applied < commit:
            stop = self.applied + APPLY_BYTES_MAX
            for header, body in self._log.entries(self.applied, commit):
                try:
                    self._apply(header, body)
                except DamagedState as damage:  # only derived files can be meant: the entry itself was verified
                    raise WrongDerived(str(damage)) from damage
                self.applied, self.time_ms = header.end, header.time_ms
                if header.end >= stop:
                    break
        return self.applied < commit

    def _apply(self, header: Header, body: memoryview) -> None:
        ahead = header.position < self.state.position
        if header.kind != EntryKind.DATA:
            if not ahead:
                self.state.advance(header.end)
            return
        try:
            preamble = parse_preamble(body)
        except CorruptEntry as error:  # its crc is right, so this is what somebody wrote: asking a peer would not help
            raise Diverged(f"the entry at {header.position} verifies but cannot be read: {error.reason}; it may take a "
                           "newer release to run on this log") from error
        if ahead:
            position, shows = header.position, self.state.shows
            self._derived.dispatch(position, header.time_ms, preamble, lambda topic: shows(topic, position))
            return
        for topic in self.state.apply(header.position, header.end, preamble):
            self._derived.delete_topic(topic)
        self._derived.dispatch(header.position, header.time_ms, preamble)
