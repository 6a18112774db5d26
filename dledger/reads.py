"""Linearizable reads that wait for proof that their leader still led after they were asked.

Law: a read is answered from the commit of its asking once a majority of voters answered a heartbeat round that began
after it. Learners' answers prove nothing: they elect nobody.
Does not know: clocks. There are no lease reads."""

from collections.abc import Collection, Mapping

from dledger.quorum import majority
from dledger.ready import ReadAnswer
from model.ids import LogPosition, NodeId


class PendingReads:
    """Reads in the order of their heartbeat rounds."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, LogPosition, object]] = []

    def ask(self, beat: int, commit: LogPosition, token: object) -> None:
        """A read asked now waits for round `beat`, which has not begun."""
        self._waiting.append((beat, commit, token))

    def confirmed(
        self, me: NodeId, current_beat: int, voters: Collection[NodeId], beats: Mapping[NodeId, int]
    ) -> list[ReadAnswer]:
        """The reads that may be served, given the newest round each member answered."""
        if not self._waiting:
            return []
        answered = sorted((current_beat if node == me else beats.get(node, 0) for node in voters), reverse=True)
        reached = answered[majority(voters) - 1]
        done = [ReadAnswer(token, position) for beat, position, token in self._waiting if beat <= reached]
        self._waiting = [read for read in self._waiting if read[0] > reached]
        return done

    def refused(self) -> list[ReadAnswer]:
        """Leadership was lost: every read must be asked again elsewhere."""
        done = [ReadAnswer(token, None) for _, _, token in self._waiting]
        self._waiting = []
        return done
