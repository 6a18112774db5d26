"""What can go wrong, as types with traits.

Law: a message says what happened, what it means, and what to do. Whoever retries reads the traits (`retriable`,
`stale_route`), never a list of classes. `Refused` promises that nothing happened; where that cannot be promised the
outcome is `OutcomeUnknown`, and the two are never confused.
Does not know: frames, exit paths, log lines. Our own broken promises are `assert`s, not errors.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar


class ResponseCode(IntEnum):
    """RocketMQ's answer codes; the numbers are the wire."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2  # fatal to 4.9 clients: never send it for "try again"
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10  # 10, 11, 12 make a transactional producer roll back: never send them
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    UPDATE_AND_CREATE_ACL_CONFIG_FAILED = 209
    DELETE_ACL_CONFIG_FAILED = 210
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED = 211
    FLOW_CONTROL = 215


class MQError(Exception):
    """Outside input or an outside condition that we cannot serve.

    The caller says what happened; what it means and what to do come with the class unless the caller knows better.
    """

    code: ClassVar[ResponseCode] = ResponseCode.SYSTEM_ERROR
    retriable: ClassVar[bool] = False  # the same request may succeed later, unchanged
    stale_route: ClassVar[bool] = False  # ask the name server again before the retry
    means: str = ""
    do: str = ""

    def __init__(self, happened: str, *, means: str | None = None, do: str | None = None) -> None:
        super().__init__(happened)
        self.happened = happened
        if means is not None:
            self.means = means
        if do is not None:
            self.do = do

    def __str__(self) -> str:
        return "; ".join(part for part in (self.happened, self.means, self.do) if part)


class OutcomeUnknown(MQError):
    code = ResponseCode.SYSTEM_ERROR
    retriable = True
    means = "it may or may not have taken effect"
    do = "repeat it with the same identity: what is already there is answered again, not stored twice"


class Refused(MQError):
    """Nothing happened, and nothing of it will happen later."""

    means = "nothing was changed"


class NotLeader(Refused):
    code = ResponseCode.SERVICE_NOT_AVAILABLE
    retriable = True
    stale_route = True
    do = "ask the leader, or the name server who that is"

    def __init__(self, happened: str = "this node does not lead its group", *, leader: str | None = None) -> None:
        super().__init__(happened, do=None if leader is None else f"ask the leader, {leader}")
        self.leader = leader


class Overloaded(Refused):
    code = ResponseCode.SERVICE_NOT_AVAILABLE  # not SYSTEM_BUSY, see there
    retriable = True
    do = "send again after a pause"


class DiskAlmostFull(Refused):
    code = ResponseCode.SERVICE_NOT_AVAILABLE
    retriable = True
    do = "make room on the broker's disk, or shorten retention_hours"


class MessageIllegal(Refused):
    code = ResponseCode.MESSAGE_ILLEGAL
    do = "mend the message; sending it again unchanged will fail again"


class TopicMissing(Refused):
    code = ResponseCode.TOPIC_NOT_EXIST
    stale_route = True
    do = "create the topic"


class SequenceGap(Refused):
    code = ResponseCode.MESSAGE_ILLEGAL
    do = "send the missing batches of this producer first, or start anew with another producer id"


class RemoteProtocolError(MQError):
    """The other side sent what cannot be a frame or a header."""

    means = "nothing that follows it can be trusted"
    do = "the connection is closed; check that the other side speaks RocketMQ's protocol, and to which port"


class LocalProtocolError(MQError):
    """We were asked to send what no frame or header can carry."""

    means = "nothing was sent"
    do = "send less at a time, or choose another header codec"


class StartError(MQError):
    """The process cannot start as told: one clear message, exit code 2, nothing changed on disk."""

    exit_code: ClassVar[int] = 2


class StoreError(StartError):
    """The directory cannot be used as this node's store."""


class StoreLocked(StoreError):
    means = "another process is using this store; two writers would destroy it"
    do = "stop the other process, or use another directory"


class NoRoom(StoreError):
    means = "a node that cannot write cannot start; nothing was touched"
    do = "free space on the disk and start the node again"


class WrongStore(StoreError):
    means = "the directory belongs to another node, group or cluster, or was made with other cluster-wide settings"
    do = "check the directory and the names in the configuration; nothing in it was touched"


class NewerFormat(StoreError):
    means = "a newer release wrote this store and this one cannot read it safely"
    do = "run that release or a later one"


class NotAStore(StoreError):
    means = "there is nothing here that this program wrote"
    do = "check the path"


class ConfigError(StartError):
    """Every mistake of a configuration at once; `problems` has one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        count = "1 mistake" if len(self.problems) == 1 else f"{len(self.problems)} mistakes"
        super().__init__(f"the configuration has {count}", means="nothing was started", do="mend:")

    def __str__(self) -> str:
        return "\n  - ".join((super().__str__(), *self.problems))
