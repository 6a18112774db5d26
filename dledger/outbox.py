"""What a core wants done, collected between two calls of `ready`.

Law: two outboxes. `messages` may leave at once; `after_sync` waits for everything written before it.
Does not know: why anything is said."""

from dledger.messages import Message
from dledger.ready import Event, ReadAnswer, Write
from model.ids import LogPosition


class Outbox:
    """One round of work in the making."""

    __slots__ = ("after_sync", "events", "handover", "messages", "reads", "truncate_to", "writes")

    def __init__(self) -> None:
        self.handover: Message | None = None
        self.truncate_to: LogPosition | None = None
        self.writes: list[Write] = []
        self.messages: list[Message] = []
        self.after_sync: list[Message] = []
        self.reads: list[ReadAnswer] = []
        self.events: list[Event] = []

    @property
    def empty(self) -> bool:
        """Whether nothing has to be done."""
        return not (
            self.writes or self.messages or self.after_sync or self.events or self.reads
            or self.handover is not None or self.truncate_to is not None
        )  # fmt: skip

    def event(self, name: str, **fields: object) -> None:
        """A fact to report."""
        self.events.append(Event(name, tuple(fields.items())))
