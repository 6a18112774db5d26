"""The bodies of the name server's answers, as RocketMQ's clients of all languages read them.

Law: strict JSON, keys quoted and in alphabetical order, no whitespace, nothing that is null: one of the readers splits
this text at commas and colons instead of parsing it. Equal tables give equal bytes.
Does not know: where the views come from, frames, response codes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from namesrv.registration import DataVersion
from namesrv.registry import GroupView, TopicRoute

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"  # namespace of "group:queues;group:queues" by topic, which overrides a route


def route_body(routes: Sequence[TopicRoute], order_conf: str | None) -> bytes:
    """GET_ROUTEINFO_BY_TOPIC. `order_conf`: what namespace ORDER_TOPIC_CONFIG holds for the topic."""
    body: dict[str, object] = {
        "brokerDatas": [_broker_data(route.group) for route in routes],
        "filterServerTable": {},
    }
    if order_conf is not None:
        body["orderTopicConf"] = order_conf
    body["queueDatas"] = [
        {
            "brokerName": route.group.group,
            "perm": route.topic.perm,
            "readQueueNums": route.topic.read_queues,
            "topicSysFlag": route.topic.sys_flag,
            "writeQueueNums": route.topic.write_queues,
        }
        for route in routes
    ]
    return _json(body)


def cluster_info_body(groups: Iterable[GroupView]) -> bytes:
    """GET_BROKER_CLUSTER_INFO."""
    brokers: dict[str, object] = {}
    clusters: dict[str, list[str]] = {}
    for view in groups:
        brokers[view.group] = _broker_data(view)
        clusters.setdefault(view.cluster, []).append(view.group)
    return _json({"brokerAddrTable": brokers, "clusterAddrTable": clusters})


def topic_list_body(topics: Iterable[str]) -> bytes:
    """GET_ALL_TOPIC_LIST_FROM_NAMESERVER, GET_TOPICS_BY_CLUSTER."""
    return _json({"topicList": list(topics)})


def system_topic_list_body(groups: Sequence[GroupView]) -> bytes:
    """GET_SYSTEM_TOPIC_LIST_FROM_NS: every cluster and group has a topic of its name; any broker's address is added,
    for the caller asks that broker for the rest."""
    names = sorted({view.cluster for view in groups} | {view.group for view in groups})
    anyone = {"brokerAddr": groups[0].addresses[0][1]} if groups else {}
    return _json({**anyone, "topicList": names})


def kv_table_body(table: Mapping[str, str]) -> bytes:
    """GET_KVLIST_BY_NAMESPACE, and the answer to a registration."""
    return _json({"table": dict(sorted(table.items()))})


def data_version_body(version: DataVersion) -> bytes:
    """QUERY_DATA_VERSION."""
    return _json({"counter": version.counter, "timestamp": version.timestamp_ms})


def _broker_data(view: GroupView) -> dict[str, object]:
    addresses = {str(number): address for number, address in view.addresses}
    return {"brokerAddrs": addresses, "brokerName": view.group, "cluster": view.cluster}


def _json(body: object) -> bytes:
    """Keys come in the order in which the callers write them: sorted here, broker id 10 would stand before 9."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
