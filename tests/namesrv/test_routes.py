"""Answer bodies, byte by byte."""

from model.ids import GroupId, Incarnation, NodeId, Term
from namesrv import routes
from namesrv.registration import DataVersion, TopicRow
from namesrv.registry import GroupView, LeaderView, TopicRoute

B0 = GroupView(
    "c", GroupId("b0"), Incarnation(7), LeaderView(NodeId("n1"), "10.0.0.2:10911", Term(5)),
    ((0, "10.0.0.2:10911"), (1, "10.0.0.1:10911"), (9, "10.0.0.9:10911"), (10, "10.0.0.10:10911")), DataVersion(3, 4),
)
B1 = GroupView("c", GroupId("b1"), Incarnation(8), None, ((0, "10.0.1.1:10911"),), None)


def test_a_route_has_every_group_of_the_topic() -> None:
    found = [TopicRoute(B0, TopicRow("t", 8, 4, 6)), TopicRoute(B1, TopicRow("t", 4, 4, 4, 1))]
    assert routes.route_body(found, None) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.2:10911","1":"10.0.0.1:10911","9":"10.0.0.9:10911",'
        b'"10":"10.0.0.10:10911"},"brokerName":"b0","cluster":"c"},'
        b'{"brokerAddrs":{"0":"10.0.1.1:10911"},"brokerName":"b1","cluster":"c"}],"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"b0","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":4},'
        b'{"brokerName":"b1","perm":4,"readQueueNums":4,"topicSysFlag":1,"writeQueueNums":4}]}'
    )


def test_an_ordered_topic_carries_its_order() -> None:
    assert routes.route_body([TopicRoute(B1, TopicRow("t", 4, 4, 6))], "b1:4") == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.1.1:10911"},"brokerName":"b1","cluster":"c"}],'
        b'"filterServerTable":{},"orderTopicConf":"b1:4",'
        b'"queueDatas":[{"brokerName":"b1","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


def test_cluster_info_lists_groups_by_cluster() -> None:
    assert routes.cluster_info_body([B1, B1._replace(cluster="d", group=GroupId("b2"))]) == (
        b'{"brokerAddrTable":{"b1":{"brokerAddrs":{"0":"10.0.1.1:10911"},"brokerName":"b1","cluster":"c"},'
        b'"b2":{"brokerAddrs":{"0":"10.0.1.1:10911"},"brokerName":"b2","cluster":"d"}},'
        b'"clusterAddrTable":{"c":["b1"],"d":["b2"]}}'
    )
    assert routes.cluster_info_body([]) == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


def test_lists_tables_and_versions() -> None:
    assert routes.topic_list_body(("%RETRY%g", "t")) == b'{"topicList":["%RETRY%g","t"]}'
    assert routes.system_topic_list_body([B1]) == b'{"brokerAddr":"10.0.1.1:10911","topicList":["b1","c"]}'
    assert routes.system_topic_list_body([]) == b'{"topicList":[]}'
    assert routes.kv_table_body({"t": "b0:4", "a": "\u00e9"}) == '{"table":{"a":"\u00e9","t":"b0:4"}}'.encode()
    assert routes.kv_table_body({}) == b'{"table":{}}'
    assert routes.data_version_body(DataVersion(3, 1700000000000)) == b'{"counter":3,"timestamp":1700000000000}'
