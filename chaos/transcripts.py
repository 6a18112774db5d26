"""Races of consensus as text: commands, `----`, and what a reader of the Raft paper should see.

    # What race this shows, and what would go wrong.
    group 1 2 3
    elect 1 with 2
    ----
    1: leader elected, term 1, end 0

Law: a transcript begins with a comment and contains a `check`. A check fails by itself, also when the expected text is
being written anew, so a rewrite can never bless a broken outcome.
Does not know: pytest. `run` works wherever the file is readable."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from chaos.coregroup import SMALL, CoreGroup
from chaos.transcript_checks import CheckFailed, check
from chaos.transcript_words import describe, event_line, state_line
from dledger.core import Role
from dledger.membership import Change, ChangeKind
from dledger.messages import Kind, Message
from dledger.ready import Event
from model.ids import LogPosition, NodeId

DIRECTORY = Path(__file__).parents[1] / "tests" / "dledger" / "transcripts"
CHANGES = {"add": ChangeKind.ADD_LEARNER, "promote": ChangeKind.PROMOTE, "remove": ChangeKind.REMOVE}
SEPARATOR = "----"


class Block(NamedTuple):
    """Commands, and the text they are expected to give."""

    comments: tuple[str, ...]
    commands: tuple[str, ...]
    expected: tuple[str, ...]


def parse(text: str) -> list[Block]:
    """Blocks are separated by empty lines; each may open with comments."""
    blocks = []
    for part in text.strip("\n").split("\n\n"):
        lines = part.splitlines()
        comments = tuple(line for line in lines if line.startswith("#"))
        lines = [line for line in lines if not line.startswith("#")]
        at = lines.index(SEPARATOR) if SEPARATOR in lines else len(lines)
        blocks.append(Block(comments, tuple(lines[:at]), tuple(lines[at + 1 :])))
    assert blocks[0].comments, "a transcript begins with a comment that says what race it shows"
    assert any(c.startswith("check ") for b in blocks for c in b.commands), "a transcript checks its outcome"
    return blocks


def render(blocks: list[Block]) -> str:
    """The inverse of `parse`."""
    parts = []
    for block in blocks:
        output = (SEPARATOR, *block.expected) if block.commands else ()
        parts.append("\n".join((*block.comments, *block.commands, *output)))
    return "\n\n".join(parts) + "\n"


def run(text: str) -> str:
    """Perform a transcript; the same text with what really happened. Raises when a check or a promise fails."""
    stage = Stage()
    return render([block._replace(expected=tuple(stage.perform(block.commands))) for block in parse(text)])


class Stage:
    """One group and the commands that move it; `do_<verb>` handles the line that begins with that word."""

    def __init__(self) -> None:
        self.group = CoreGroup(())
        self.counts: dict[str, int] = {}  # how often each event happened
        self._held: list[Message] = []
        self._lines: list[str] = []

    def perform(self, commands: tuple[str, ...]) -> list[str]:
        """Run one block; its output."""
        self._lines = []
        for command in commands:
            verb, *words = command.split()
            handler: Callable[..., None] = getattr(self, "do_" + verb)
            try:
                handler(*words)
            except AssertionError as error:
                happened = "\n".join(self._lines)
                raise CheckFailed(f"{command}: {error!r}\nbefore that:\n{happened}") from error
        return self._lines

    # ---- machines ------------------------------------------------------------------------------------------------

    def do_group(self, *words: str) -> None:
        """group 1 2 3 segment_bytes=256: the first voters, all empty, and constants other than the usual."""
        settings = dict(word.split("=") for word in words if "=" in word)
        config = SMALL._replace(**{name: int(value) for name, value in settings.items()})
        self.group = CoreGroup([word for word in words if "=" not in word], config)
        self.group.on_event = self._on_event

    def do_join(self, *names: str) -> None:
        """join 4: a machine with an empty directory."""
        for name in names:
            self.group.join(NodeId(name))

    def do_wipe(self, name: str) -> None:
        """wipe 3: its directory is lost; it starts again under a new incarnation."""
        self.group.crash(NodeId(name))
        self.group.join(NodeId(name))

    def do_crash(self, *names: str) -> None:
        """crash 1 2: the power goes; what was not synced is lost."""
        for name in names:
            self.group.crash(NodeId(name))

    def do_powercut(self, name: str, reached: str) -> None:
        """powercut 3 2: a crash, but the first two unsynced entries had reached the platter by themselves."""
        self.group.crash(NodeId(name), int(reached))

    def do_restart(self, *names: str) -> None:
        """restart 1 2: recover what the disk has."""
        for name in names:
            self.group.start(NodeId(name))

    def do_slow(self, *names: str) -> None:
        """slow 2: its disk syncs only when told to."""
        for name in names:
            self.group.nodes[NodeId(name)].syncs_itself = False

    def do_fast(self, *names: str) -> None:
        """fast 2: its disk syncs everything at once again."""
        for name in names:
            self.group.nodes[NodeId(name)].syncs_itself = True
            self.group.sync(NodeId(name))

    def do_sync(self, *names: str) -> None:
        """sync 2: a whole sync."""
        for name in names:
            self.group.sync(NodeId(name))

    def do_begin(self, name: str) -> None:
        """begin 2: a sync starts, covering what was written so far."""
        self.group.begin_sync(NodeId(name))

    def do_finish(self, name: str) -> None:
        """finish 2: the sync that was begun ends."""
        self.group.finish_sync(NodeId(name))

    # ---- what a node is asked to do --------------------------------------------------------------------------------

    def do_elect(self, name: str, *words: str) -> None:
        """elect 1 with 2 3: it campaigns in a term new to all of them, only these hear it, and it must win."""
        node, voters = NodeId(name), [NodeId(word) for word in words[1:]]
        self.group.depose(node)
        self.group.campaign(node, max(self.group.core(voter).term for voter in (node, *voters)))
        for voter in voters:
            self._pass(_matching((f"{node}->{voter}", "vote")))
            self._pass(_matching((f"{voter}->{node}", "vote_reply")))
        self.group.wire = [m for m in self.group.wire if not (m.source == node and m.kind is Kind.VOTE)]
        if self.group.core(node).role is not Role.LEADER:
            raise CheckFailed(f"{name} was not elected: {state_line(self.group, node)}")

    def do_campaign(self, name: str, after: str = "0") -> None:
        """campaign 1 / campaign 1 2: it asks for votes, whatever its timer says, after the term it knows or term 2."""
        self.group.campaign(NodeId(name), int(after))

    def do_propose(self, name: str, payload: str, size: str = "100") -> None:
        """propose 1 x 100: an entry named x of 100 bytes."""
        position = self.group.propose(NodeId(name), int(size), payload)
        self._say(f"{name}: {payload} at {position}" if position is not None else f"{name}: refuses {payload}")

    def do_change(self, name: str, what: str, member: str) -> None:
        """change 1 add 4 / promote 4 / remove 3."""
        incarnation = self.group.nodes[NodeId(member)].incarnation
        if self.group.change(NodeId(name), Change(CHANGES[what], NodeId(member), incarnation)) is None:
            self._say(f"{name}: cannot {what} {member} now")

    def do_transfer(self, name: str, target: str) -> None:
        """transfer 1 2: leadership is handed on."""
        if not self.group.transfer(NodeId(name), NodeId(target)):
            self._say(f"{name}: cannot hand leadership to {target}")

    def do_read(self, name: str, token: str) -> None:
        """read 1 r: a linearizable read."""
        if not self.group.read(NodeId(name), token):
            self._say(f"{name}: cannot serve {token}")

    def do_linkloss(self, name: str, peer: str) -> None:
        """linkloss 2 1: 2 sees its connection to 1 break."""
        self.group.link_lost(NodeId(name), NodeId(peer))

    def do_drophead(self, name: str, to: str) -> None:
        """drophead 1 4096: the log begins there from now on."""
        self.group.move_start(NodeId(name), LogPosition(int(to)))

    def do_tick(self, name: str, count: str) -> None:
        """tick 1 5: time passes at one node; what it sends stays on the wire."""
        for _ in range(int(count)):
            self.group.tick(NodeId(name))

    def do_run(self, ticks: str) -> None:
        """run 20: time passes everywhere and everything arrives."""
        self.group.run(int(ticks))

    # ---- messages ------------------------------------------------------------------------------------------------

    def do_deliver(self, *words: str) -> None:
        """deliver / deliver 1->2 append: everything until quiet, or what matches and is on the wire now."""
        if words:
            self._pass(_matching(words))
        else:
            self.group.pump(self._show_message)

    def do_drop(self, *words: str) -> None:
        """drop 1->2 append: lost for ever."""
        wanted = _matching(words)
        self.group.wire = [m for m in self.group.wire if not wanted(m)]

    def do_hold(self, *words: str) -> None:
        """hold 1->2 append: delayed until `release`."""
        wanted = _matching(words)
        self._held += [m for m in self.group.wire if wanted(m)]
        self.do_drop(*words)

    def do_copy(self, *words: str) -> None:
        """copy 1->2 append: the network keeps a copy that `release` lets out."""
        wanted = _matching(words)
        self._held += [m for m in self.group.wire if wanted(m)]

    def do_release(self, *words: str) -> None:
        """release 1->2 append: what was held arrives now."""
        wanted = _matching(words)
        released, self._held = [m for m in self._held if wanted(m)], [m for m in self._held if not wanted(m)]
        for message in released:
            self._show_message(message, always=True)
            self.group.deliver(message)

    def do_cut(self, *ways: str) -> None:
        """cut 1-2 / 1->2: nothing passes, both ways or one way."""
        for way in ways:
            one_way = "->" in way
            source, target = (NodeId(name) for name in way.split("->" if one_way else "-"))
            self.group.cuts |= {(source, target)} if one_way else {(source, target), (target, source)}

    def do_isolate(self, *names: str) -> None:
        """isolate 1: cut from everybody."""
        for name in names:
            self.do_cut(*(f"{name}-{other}" for other in self.group.nodes if other != name))

    def do_heal(self) -> None:
        """heal: every way is open again."""
        self.group.cuts.clear()

    # ---- what is seen --------------------------------------------------------------------------------------------

    def do_show(self, *names: str) -> None:
        """show 1 2 / show all: one line of state per node."""
        for name in self.group.nodes if names == ("all",) else names:
            self._say(state_line(self.group, NodeId(name)))

    def do_wire(self) -> None:
        """wire: what is under way."""
        for message in self.group.wire:
            self._say(describe(message))

    def do_check(self, *words: str) -> None:
        """check ...: see chaos.transcript_checks."""
        check(self.group, self.counts, words)

    def _pass(self, wanted: Callable[[Message], bool]) -> None:
        for message in [m for m in self.group.wire if wanted(m)]:
            self.group.wire.remove(message)
            self._show_message(message, always=True)
            self.group.deliver(message)

    def _show_message(self, message: Message, *, always: bool = False) -> None:
        if always or message.kind not in (Kind.BEAT, Kind.BEAT_REPLY):
            self._say(describe(message))

    def _on_event(self, node: NodeId, event: Event) -> None:
        self.counts[event.name] = self.counts.get(event.name, 0) + 1
        self._say(event_line(node, event))

    def _say(self, line: str) -> None:
        self._lines.append(line)


def _matching(words: tuple[str, ...]) -> Callable[[Message], bool]:
    """1->2 append: from, to (either may be *) and perhaps a kind."""
    source, target = words[0].split("->")
    kind = Kind[words[1].upper()] if len(words) > 1 else None
    return lambda m: (
        source in ("*", m.source) and target in ("*", m.target) and (kind is None or m.kind is kind)
    )  # fmt: skip
