"""What a node does before consensus may run on it: form a group, or mend its log with what peers have.

Law: an empty directory forms a group only if all configured voters say that they see the same empty voters; if a group
exists, an empty node enters it only under the incarnation that the group's genesis names, and otherwise joins as
somebody new. A node whose bytes do not verify below its durable watermark neither votes nor leads until they are back.
Does not know: the network; the Replica asks and tells."""

from broker.codec import decode_membership
from broker.opening import Records, Scanned
from broker.ports import Hello, RepairGive
from broker.repair import entries_from, mend, proven_end
from model.ids import Incarnation, LogPosition, NodeId
from store.disk import Disk
from store.entry import CorruptEntry, inspect

Genesis = tuple[tuple[NodeId, Incarnation], ...]


class Forming:
    """An empty node collects what the configured voters say of themselves."""

    def __init__(self, node: NodeId, incarnation: Incarnation, voters: tuple[NodeId, ...]) -> None:
        self._me = (node, incarnation)
        self._voters = voters
        self._empty: dict[NodeId, Incarnation] = {node: incarnation}
        self._agreed: dict[NodeId, Genesis] = {}  # what each voter last said it sees
        self._entered: Genesis | None = None
        self.must_join = False  # the group exists and does not know this incarnation

    def heard(self, node: NodeId, incarnation: Incarnation, hello: Hello) -> None:
        """A voter says whether it is empty."""
        if hello.genesis is None:
            self._empty[node] = incarnation
            self._agreed[node] = hello.seen
        elif self._me in hello.genesis:
            self._entered = hello.genesis
        else:
            self.must_join = True

    @property
    def seen(self) -> Genesis:
        """The configured voters that said they are empty."""
        return tuple((voter, self._empty[voter]) for voter in sorted(self._voters) if voter in self._empty)

    def genesis(self) -> Genesis | None:
        """The group's first voters: as somebody who formed it says, or all of us when all see the same empty voters.

        To have heard everybody once is not enough: C hears that A is empty and is cut off; A and B form, commit, and B
        is wiped; C hears the new B and would form another group with it, without what A and the old B committed."""
        if self._entered is not None or self.must_join:
            return self._entered
        seen = self.seen
        others = [voter for voter in self._voters if voter != self._me[0]]
        complete = len(seen) == len(self._voters) and all(self._agreed.get(voter) == seen for voter in others)
        return seen if complete else None


class Repairing:
    """A fenced node mends the bytes from `position` on with entries that peers give."""

    def __init__(self, disk: Disk, segment_bytes: int, records: Records, scanned: Scanned) -> None:
        found = scanned.result
        assert records.snapshot is not None and found.damage is not None
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._marks = records.marks
        self._found = found
        self.whole = scanned.whole  # whether the repair must look at the whole log again
        self._unusable: set[NodeId] = set()
        self.position = LogPosition(found.end)
        self.lost = False  # no voter has bytes that belong here: the rest must come from a leader
        memberships = (*records.snapshot.memberships, *found.memberships)
        self._membership = decode_membership(memberships[-1][1])

    @property
    def good_part(self) -> Scanned:
        """What verifies, as if the log ended there."""
        return Scanned(self._found._replace(damage=None), self.whole)

    def whom_to_ask(self, node: NodeId) -> list[NodeId]:
        """The other members."""
        return [member for member in self._membership.nodes if member != node]

    def take(self, source: NodeId, given: RepairGive, node: NodeId) -> bool:
        """Use what a peer gave; True when the log should be looked at again."""
        if given.position != self.position:
            return False
        try:
            inspect(given.payload, given.position)
            end = proven_end(
                self._disk, self._segment_bytes, given.position, given.payload, given.commit,
                self._marks.durable, self._marks.chain,
            )  # fmt: skip
            if end > given.position:
                mend(self._disk, self._segment_bytes, given.position, self._found.chain, given.payload, end)
                return True
        except CorruptEntry:
            pass  # not what belongs here
        self._unusable.add(source)
        self.lost = all(voter in self._unusable for voter in self._membership.voters if voter != node)
        return self.lost

    def give(self, position: LogPosition) -> RepairGive:
        """What a damaged node can still give to another one."""
        payload = entries_from(self._disk, self._segment_bytes, position, self._marks.durable)
        return RepairGive(position, LogPosition(self._marks.commit), payload)
