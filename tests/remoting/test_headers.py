"""Typed headers: names, types and needs as RocketMQ has them; what is written is read back."""

from types import NoneType
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import ResponseCode
from remoting import headers
from remoting.codes import Codec, LanguageCode, RequestCode
from remoting.fields import HeaderIllegal, Int, Long, camel_case, decode, encode, plan_of, to_bool, to_int, to_long
from remoting.headers import HEADERS, PullMessage, SendMessage, SendMessageAnswer, decode_send_v2, encode_send_v2

# As the protocol's description has them: ! required, ? may be missing; %d int, %l long, %b boolean, the rest is text.
SEND = (
    "producerGroup! topic! defaultTopic! defaultTopicQueueNums%d! queueId%d! sysFlag%d! bornTimestamp%l! flag%d! "
    "properties? reconsumeTimes%d? unitMode%b? maxReconsumeTimes%d? batch%b? bname?"
)
PULL = (
    "consumerGroup! topic! queueId%d! queueOffset%l! maxMsgNums%d! sysFlag%d! commitOffset%l! "
    "suspendTimeoutMillis%l! subVersion%l! subscription? expressionType? bname?"
)
END = (
    "producerGroup! tranStateTableOffset%l! commitLogOffset%l! commitOrRollback%d! msgId! "
    "fromTransactionCheck%b? transactionId? bname?"
)
PULLED = "suggestWhichBrokerId%l! nextBeginOffset%l! minOffset%l! maxOffset%l!"
SENT = "msgId! queueId%d! queueOffset%l! transactionId? MSG_REGION? TRACE_ON%b?"
QUEUE = "topic! queueId%d!"
TABLE = {
    10: (SEND, SENT),
    310: (SEND, SENT),
    320: (SEND, SENT),
    37: (END, ""),
    11: (PULL, PULLED),
    361: (PULL, PULLED),
    12: (
        "topic! key! maxNum%d! beginTimestamp%l! endTimestamp%l! _UNIQUE_KEY_QUERY%b?",
        "indexLastUpdateTimestamp%l! indexLastUpdatePhyoffset%l!",
    ),
    14: ("consumerGroup! topic! queueId%d!", "offset%l!"),
    15: ("consumerGroup! topic! queueId%d! commitOffset%l!", ""),
    29: (QUEUE + " timestamp%l!", "offset%l!"),
    30: (QUEUE, "offset%l!"),
    31: (QUEUE, "offset%l!"),
    32: (QUEUE, "timestamp%l!"),
    33: ("offset%l!", ""),
    34: ("", ""),
    35: ("clientID! producerGroup? consumerGroup?", ""),
    36: (
        "offset%l! group! delayLevel%d! originMsgId? originTopic? unitMode%b? maxReconsumeTimes%d? bname?",
        "",
    ),
    38: ("consumerGroup!", ""),
    39: ("tranStateTableOffset%l! commitLogOffset%l! msgId? transactionId? offsetMsgId? bname?", ""),
    40: ("consumerGroup!", ""),
    41: ("", ""),
    42: ("", ""),
    17: (
        "topic! defaultTopic! readQueueNums%d! writeQueueNums%d! perm%d! topicFilterType! order%b! topicSysFlag%d?",
        "",
    ),
    215: ("topic!", ""),
    100: ("namespace! key! value!", ""),
    101: ("namespace! key!", "value?"),
    102: ("namespace! key!", ""),
    219: ("namespace!", ""),
    103: (
        "brokerName! brokerAddr! clusterName! haServerAddr! brokerId%l! compressed%b? bodyCrc32%d?",
        "haServerAddr? masterAddr?",
    ),
    104: ("brokerName! brokerAddr! clusterName! brokerId%l!", ""),
    105: ("topic! acceptStandardJsonOnly%b?", ""),
    106: ("", ""),
    206: ("", ""),
    224: ("cluster!", ""),
}
MARKS: dict[Any, str] = {to_int: "%d", to_long: "%l", to_bool: "%b"}
CLASSES = sorted({each for pair in HEADERS.values() for each in pair if each is not None}, key=lambda cls: cls.__name__)

EXT = {
    "a": "group",
    "b": "orders",
    "c": "TBW102",
    "d": "4",
    "e": "-1",
    "f": "0",
    "g": "1700000000000",
    "h": "7",
    "i": "KEYS\x01k",
    "j": "2",
    "k": "false",
    "l": "16",
    "m": "true",
    "n": "broker-a",
}
SENDING = SendMessage(
    "group", "orders", "TBW102", 4, -1, 0, 1700000000000, 7, "KEYS\x01k", 2, False, 16, True, "broker-a"
)


def described(cls: type[tuple[Any, ...]] | None) -> str:
    if cls is None:
        return ""
    plan = plan_of(cls)
    marks = {i: MARKS[convert] for i, convert in plan.converts}
    fields = (f"{name}{marks.get(i, '')}{'!' if i < plan.required else '?'}" for i, name in enumerate(plan.names))
    return " ".join(fields)


def test_headers_have_the_names_types_and_needs_of_the_protocol() -> None:
    found = {code.value: (described(pair.request), described(pair.answer)) for code, pair in HEADERS.items()}
    assert found == TABLE


def values_of(cls: type[tuple[Any, ...]]) -> st.SearchStrategy[tuple[Any, ...]]:
    kinds = {
        str: st.text(max_size=8),
        bool: st.booleans(),
        Int: st.integers(-(2**31), 2**31 - 1),
        Long: st.integers(-(2**63), 2**63 - 1),
        NoneType: st.none(),
    }

    def strategy(name: str, hint: Any) -> st.SearchStrategy[Any]:
        if hint in kinds:
            return kinds[hint]
        if "Wire" in repr(hint):
            return kinds[get_args(hint)[0]]
        assert getattr(cls, "_field_defaults")[name] is None  # noqa: B009
        return st.one_of([kinds[each] for each in get_args(hint)])

    return st.builds(cls, *(strategy(name, hint) for name, hint in cls.__annotations__.items()))


@given(st.sampled_from(CLASSES).flatmap(values_of))
def test_what_is_written_is_read_back(header: tuple[Any, ...]) -> None:
    ext = encode(header)
    assert all(type(value) is str for value in ext.values())
    assert decode(type(header), ext) == header
    assert decode(type(header), {**ext, "nsd": "unknown", "AccessKey": "k"}) == header


@pytest.mark.parametrize("cls", CLASSES)
def test_each_missing_field_is_named_or_has_its_default(cls: type[tuple[Any, ...]]) -> None:
    plan = plan_of(cls)
    full = dict.fromkeys(plan.names, "1")
    for i, name in enumerate(plan.names):
        ext = {key: value for key, value in full.items() if key != name}
        if i < plan.required:
            with pytest.raises(HeaderIllegal, match=f"the required field {name} is missing") as caught:
                decode(cls, ext)
            assert caught.value.code == ResponseCode.SYSTEM_ERROR
        else:
            assert decode(cls, ext)[i] == plan.defaults[i - plan.required]


def test_letters_and_names_give_the_same_send() -> None:
    assert decode_send_v2(EXT) == SENDING and encode_send_v2(SENDING) == EXT
    assert decode(SendMessage, encode(SENDING)) == SENDING
    assert encode(SENDING)["defaultTopicQueueNums"] == "4" and encode(SENDING)["batch"] == "true"
    with pytest.raises(HeaderIllegal, match="required field e is missing"):
        decode_send_v2({key: value for key, value in EXT.items() if key != "e"})
    short = decode_send_v2({key: EXT[key] for key in "abcdefgh"})
    assert short[8:] == ("", 0, False, None, False, None)


@pytest.mark.parametrize("text", ["", "x", "1.0", " 1", "1_0", "+1", "--1", "-", "²", "0x10", "2147483648", "9" * 5000])
def test_a_field_that_is_no_number_is_named(text: str) -> None:
    with pytest.raises(HeaderIllegal, match=r"field e is '.{0,39}'?, not a 32-bit number"):
        decode_send_v2({**EXT, "e": text})


def test_numbers_are_as_wide_as_javas() -> None:
    assert [to_int(text) for text in ("-2147483648", "2147483647", "007")] == [-(2**31), 2**31 - 1, 7]
    assert [to_long(text) for text in (str(-(2**63)), str(2**63 - 1))] == [-(2**63), 2**63 - 1]
    for text in ("-2147483649", "2147483648"):
        with pytest.raises(ValueError):
            to_int(text)
    for text in (str(-(2**63) - 1), str(2**63)):
        with pytest.raises(ValueError):
            to_long(text)


def test_whatever_is_not_true_is_false_as_in_java() -> None:
    assert [to_bool(text) for text in ("true", "TRUE", "True", "false", "1", "yes", "")] == [True] * 3 + [False] * 4


def test_a_send_answer_carries_region_and_trace_and_no_empty_transaction() -> None:
    ext = encode(SendMessageAnswer("7F00", 3, 12))
    assert ext == {
        "msgId": "7F00",
        "queueId": "3",
        "queueOffset": "12",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_ali_ons_may_leave_out_what_it_has_no_value_for() -> None:
    ext = dict.fromkeys(plan_of(PullMessage).names[:9], "1")
    pulled = decode(PullMessage, ext)
    assert pulled.subscription is pulled.expression_type is pulled.bname is None


def test_camel_case() -> None:
    assert camel_case("default_topic_queue_nums") == "defaultTopicQueueNums" and camel_case("topic") == "topic"


def test_every_number_has_one_name() -> None:
    for codes in (RequestCode, LanguageCode, Codec):
        assert len(codes.__members__) == len(list(codes))


def test_every_request_code_of_the_protocol_has_a_name() -> None:
    producer = {10, 37, 310, 320, 324, 325}
    consumer = {11, 14, 15, 29, 30, 31, 32, 34, 35, 36, 38, 41, 42, 46, 361}
    to_client = {39, 40, 220, 221, 307, 309, 326}
    namesrv = {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327}
    admin = {12, 17, 21, 25, 26, 27, 28, 33, 43, 45, 50, 51, 52, 53, 200, 201, 202, 203, 204, 207, 208, 215, 222, 223}
    admin |= {300, 303, 305, 306, 308, 314, 315, 316, 317, 321, 323, 328, 329}
    assert set(RequestCode) == producer | consumer | to_client | namesrv | admin


def test_every_header_class_belongs_to_a_code() -> None:
    declared = {
        each for each in vars(headers).values() if isinstance(each, type) and each.__module__ == headers.__name__
    }
    assert declared - set(CLASSES) == {headers.Headers}
