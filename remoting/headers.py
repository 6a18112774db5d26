"""The typed headers of requests and answers, under RocketMQ's names.

Law: what a request or an answer says beside its body stands here once, and HEADERS says which goes with which code.
A field that clients may leave out has RocketMQ's own default. Requests without fields (heartbeat, locks, lists) and
answers without fields have no header.
Does not know: how fields are read and written (remoting/fields.py), who may send what.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from remoting.codes import RequestCode
from remoting.fields import Int, Long, Wire, decode_by, encode_by, plan_of

# --- producers


class SendMessage(NamedTuple):
    """A send: single (10), the same in letters (310), or a batch in letters (320)."""

    producer_group: str
    topic: str
    default_topic: str  # the one to copy if topic does not exist
    default_topic_queue_nums: Int
    queue_id: Int  # negative: any
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str = ""
    reconsume_times: Int = 0
    unit_mode: bool = False
    max_reconsume_times: Int | None = None
    batch: bool = False
    bname: str | None = None


class SendMessageAnswer(NamedTuple):
    msg_id: str  # for a batch: all ids, joined with ","
    queue_id: Int
    queue_offset: Long  # of the first message
    transaction_id: str | None = None
    region: Annotated[str, Wire("MSG_REGION")] = "DefaultRegion"
    trace_on: Annotated[bool, Wire("TRACE_ON")] = True


class EndTransaction(NamedTuple):
    producer_group: str
    tran_state_table_offset: Long  # the half message's offset in its queue
    commit_log_offset: Long
    commit_or_rollback: Int  # 8 commit, 12 roll back, 0 unknown
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str | None = None
    bname: str | None = None


# --- consumers


class PullMessage(NamedTuple):
    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    sub_version: Long
    subscription: str | None = None
    expression_type: str | None = None
    bname: str | None = None


class PullMessageAnswer(NamedTuple):
    """All four fields in answers 0, 19, 20 and 21: clients read them unasked."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long


class QueryConsumerOffset(NamedTuple):
    consumer_group: str
    topic: str
    queue_id: Int


class UpdateConsumerOffset(NamedTuple):
    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long  # ali-ons sends -1 when it has none


class QueueOfTopic(NamedTuple):
    """Which queue is asked about: 30, 31, 32."""

    topic: str
    queue_id: Int


class SearchOffset(NamedTuple):
    topic: str
    queue_id: Int
    timestamp: Long


class OffsetAnswer(NamedTuple):
    offset: Long


class TimestampAnswer(NamedTuple):
    timestamp: Long


class UnregisterClient(NamedTuple):
    client_id: Annotated[str, Wire("clientID")]
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerSendMsgBack(NamedTuple):
    offset: Long  # the message's position in the commitlog
    group: str
    delay_level: Int  # negative: to the dead letters; 0: the broker chooses
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None
    bname: str | None = None


class ConsumerGroup(NamedTuple):
    """The group whose members are asked for (38) or have changed (40)."""

    consumer_group: str


class CheckTransactionState(NamedTuple):
    """From the broker to a producer; the body is the half message."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    bname: str | None = None


# --- queries and administration of a broker


class QueryMessage(NamedTuple):
    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    unique_key: Annotated[bool, Wire("_UNIQUE_KEY_QUERY")] = False


class QueryMessageAnswer(NamedTuple):
    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class ViewMessage(NamedTuple):
    offset: Long  # position in the commitlog


class CreateTopic(NamedTuple):
    topic: str
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    order: bool
    topic_sys_flag: Int = 0


class TopicName(NamedTuple):
    """The topic to delete."""

    topic: str


# --- name server


class GetRoute(NamedTuple):
    topic: str
    accept_standard_json_only: bool = False


class RegisterBroker(NamedTuple):
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    compressed: bool = False
    body_crc32: Int = 0  # 0: unchecked


class RegisterBrokerAnswer(NamedTuple):
    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBroker(NamedTuple):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class PutKv(NamedTuple):
    namespace: str
    key: str
    value: str


class KvKey(NamedTuple):
    """The entry to get (101) or to delete (102)."""

    namespace: str
    key: str


class KvAnswer(NamedTuple):
    value: str | None = None


class KvNamespace(NamedTuple):
    namespace: str


class ClusterName(NamedTuple):
    cluster: str


# --- which header goes with which code

Declared = type[tuple[Any, ...]] | None


class Headers(NamedTuple):
    request: Declared
    answer: Declared


HEADERS: dict[RequestCode, Headers] = {
    RequestCode.SEND_MESSAGE: Headers(SendMessage, SendMessageAnswer),
    RequestCode.SEND_MESSAGE_V2: Headers(SendMessage, SendMessageAnswer),  # in letters
    RequestCode.SEND_BATCH_MESSAGE: Headers(SendMessage, SendMessageAnswer),  # in letters
    RequestCode.END_TRANSACTION: Headers(EndTransaction, None),
    RequestCode.PULL_MESSAGE: Headers(PullMessage, PullMessageAnswer),
    RequestCode.LITE_PULL_MESSAGE: Headers(PullMessage, PullMessageAnswer),
    RequestCode.QUERY_CONSUMER_OFFSET: Headers(QueryConsumerOffset, OffsetAnswer),
    RequestCode.UPDATE_CONSUMER_OFFSET: Headers(UpdateConsumerOffset, None),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Headers(SearchOffset, OffsetAnswer),
    RequestCode.GET_MAX_OFFSET: Headers(QueueOfTopic, OffsetAnswer),
    RequestCode.GET_MIN_OFFSET: Headers(QueueOfTopic, OffsetAnswer),
    RequestCode.GET_EARLIEST_MSG_STORETIME: Headers(QueueOfTopic, TimestampAnswer),
    RequestCode.HEART_BEAT: Headers(None, None),
    RequestCode.UNREGISTER_CLIENT: Headers(UnregisterClient, None),
    RequestCode.CONSUMER_SEND_MSG_BACK: Headers(ConsumerSendMsgBack, None),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: Headers(ConsumerGroup, None),
    RequestCode.LOCK_BATCH_MQ: Headers(None, None),
    RequestCode.UNLOCK_BATCH_MQ: Headers(None, None),
    RequestCode.CHECK_TRANSACTION_STATE: Headers(CheckTransactionState, None),
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: Headers(ConsumerGroup, None),
    RequestCode.QUERY_MESSAGE: Headers(QueryMessage, QueryMessageAnswer),
    RequestCode.VIEW_MESSAGE_BY_ID: Headers(ViewMessage, None),
    RequestCode.UPDATE_AND_CREATE_TOPIC: Headers(CreateTopic, None),
    RequestCode.DELETE_TOPIC_IN_BROKER: Headers(TopicName, None),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: Headers(GetRoute, None),
    RequestCode.REGISTER_BROKER: Headers(RegisterBroker, RegisterBrokerAnswer),
    RequestCode.UNREGISTER_BROKER: Headers(UnregisterBroker, None),
    RequestCode.GET_BROKER_CLUSTER_INFO: Headers(None, None),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Headers(None, None),
    RequestCode.GET_TOPICS_BY_CLUSTER: Headers(ClusterName, None),
    RequestCode.PUT_KV_CONFIG: Headers(PutKv, None),
    RequestCode.GET_KV_CONFIG: Headers(KvKey, KvAnswer),
    RequestCode.DELETE_KV_CONFIG: Headers(KvKey, None),
    RequestCode.GET_KVLIST_BY_NAMESPACE: Headers(KvNamespace, None),
}

LETTERS = tuple("abcdefghijklmn")  # SendMessage's fields in order; they save a hundred bytes in every send
SEND_IN_LETTERS = plan_of(SendMessage)._replace(names=LETTERS)
assert len(LETTERS) == len(SendMessage._fields)


def decode_send_v2(ext: Mapping[str, str]) -> SendMessage:
    """The header of 310 and 320."""
    return decode_by(SEND_IN_LETTERS, SendMessage, ext)


def encode_send_v2(header: SendMessage) -> dict[str, str]:
    return encode_by(SEND_IN_LETTERS, header)
