"""Apache Kafka's own command line tools, unchanged."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from headwater.state.machine import LEVEL
from tests.compat.common import new_topic
from tests.compat.kafka_tools import KafkaTools
from tests.compat.wire import fetch_batches
from tests.support.promise import promise

PROMISES = ("K6", "K7", "K14", "K15")

pytestmark = pytest.mark.long


class Tools:
    """Tools that talk to one server."""

    def __init__(self, bootstrap: str, tools: KafkaTools) -> None:
        self.bootstrap = bootstrap
        self._tools = tools

    def run(self, name: str, *arguments: str, given: str = "", fails: bool = False) -> str:
        """What a tool says; by default it must succeed."""
        done = self._tools.run(name, *arguments, given=given)
        assert (done.code != 0) is fails, f"{done.out}\n{done.error}"
        return done.out + done.error if fails else done.out

    def ask(self, name: str, *arguments: str, given: str = "", fails: bool = False) -> str:
        """A tool that is told the server."""
        return self.run(name, "--bootstrap-server", self.bootstrap, *arguments, given=given, fails=fails)

    def configs(self, *arguments: str, fails: bool = False) -> str:
        return self.ask("kafka.admin.ConfigCommand", *arguments, fails=fails)


@pytest.fixture(scope="module")
def tools(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with KafkaTools(tmp_path_factory.mktemp("tools")) as running:
        yield Tools(bootstrap, running)


@pytest.fixture(scope="module")
def topic(tools: Tools) -> str:
    """A topic made by kafka-topics, with three partitions."""
    name = new_topic("tools")
    options = ("--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=100000000")
    assert f"Created topic {name}." in tools.ask("TopicCommand", "--create", "--topic", name, *options)
    return name


@promise("K7")
def test_topics(tools: Tools, topic: str) -> None:
    """kafka-topics."""
    again = tools.ask("TopicCommand", "--create", "--topic", topic, "--partitions", "1", fails=True)
    assert f"Topic '{topic}' already exists." in again
    tools.ask("TopicCommand", "--alter", "--topic", topic, "--partitions", "4")
    said = tools.ask("TopicCommand", "--describe", "--topic", topic)
    assert re.search(rf"Topic: {topic}\tTopicId: \S{{22}}\tPartitionCount: 4\tReplicationFactor: 1\t", said)
    assert "retention.ms=100000000" in said
    rows = re.findall(r"Partition: (\d)\tLeader: (\d+)\tReplicas: (\d+)\tIsr: (\d+)", said)
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    assert all(leader == replicas == isr for _, leader, replicas, isr in rows)


@promise("K7")
def test_internal_topics(tools: Tools, topic: str) -> None:
    """kafka-topics and kafka-get-offsets find Kafka's internal topics, empty, and can leave them out."""
    internal = {"__consumer_offsets", "__transaction_state"}
    assert {topic, *internal} <= set(tools.ask("TopicCommand", "--list").split())
    others = tools.ask("TopicCommand", "--list", "--exclude-internal").split()
    assert topic in others and not internal & set(others)
    said = tools.ask("TopicCommand", "--describe", "--topic", "__consumer_offsets")
    assert re.search(r"PartitionCount: 50\tReplicationFactor: 1\tConfigs: .*cleanup.policy=compact", said)
    assert len(re.findall(r"Partition: \d+\tLeader: \d+\tReplicas: \d+\tIsr: \d+", said)) == 50
    offsets = tools.ask("GetOffsetShell", "--topic-partitions", "__.*:0-2").split()
    assert offsets == [f"{name}:{partition}:0" for name in sorted(internal) for partition in (0, 1)]
    refused = tools.ask("TopicCommand", "--delete", "--topic", "__transaction_state", fails=True)
    assert "is internal" in refused


@promise("K7")
def test_topic_configs(tools: Tools, topic: str) -> None:
    """kafka-configs; all that Kafka has is shown, with its type and source."""
    which = ("--entity-type", "topics", "--entity-name", topic)
    tools.configs("--alter", *which, "--add-config", "max.message.bytes=2000000,compression.type=zstd")
    said = tools.configs("--describe", "--all", *which)
    shown = dict(re.findall(r"^  ([a-z0-9.]+)=(\S*) sensitive=false synonyms=", said, re.M))
    assert (shown["max.message.bytes"], shown["compression.type"]) == ("2000000", "zstd")
    assert "DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000000, DEFAULT_CONFIG:message.max.bytes=1048588" in said
    tools.configs("--alter", *which, "--add-config", "segment.bytes=2000000,min.insync.replicas=2")
    assert "segment.bytes=2000000 " in tools.configs("--describe", *which)
    assert not tools.ask("TopicCommand", "--describe", "--topic", topic, "--under-min-isr-partitions").strip()
    for name in ("cleanup.policy", "segment.bytes", "min.insync.replicas", "flush.ms", "remote.storage.enable"):
        assert name in shown
    refused = tools.configs("--alter", *which, "--add-config", "remote.storage.enable=true", fails=True)
    assert "InvalidConfigurationException" in refused


@promise("K7")
def test_defaults_of_topic_configs(tools: Tools, topic: str) -> None:
    """kafka-configs sets a default for the whole cluster, and topics show it."""
    everywhere, name = ("--entity-type", "brokers", "--entity-default"), "log.index.interval.bytes"
    said = tools.configs("--alter", *everywhere, "--add-config", f"{name}=5000")
    assert "Completed updating default config for brokers" in said
    assert f"{name}=5000 sensitive=false synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:{name}=5000}}" in tools.configs(
        "--describe", *everywhere
    )
    shown = tools.configs("--describe", "--all", "--entity-type", "topics", "--entity-name", topic)
    wanted = f"{{DYNAMIC_DEFAULT_BROKER_CONFIG:{name}=5000, DEFAULT_CONFIG:{name}=4096}}"
    assert f"index.interval.bytes=5000 sensitive=false synonyms={wanted}" in shown
    tools.configs("--alter", *everywhere, "--delete-config", name)


@promise("K14", "K7")
def test_quotas_and_groups(tools: Tools) -> None:
    """kafka-configs for clients and groups."""
    client = new_topic("client")
    which = ("--entity-type", "users", "--entity-name", "ann", "--entity-type", "clients", "--entity-name", client)
    tools.configs("--alter", *which, "--add-config", "producer_byte_rate=1000,request_percentage=50.5")
    said = tools.configs("--describe", *which)
    assert f"Quota configs for user-principal 'ann', client-id '{client}' are" in said
    assert "producer_byte_rate=1000.0" in said and "request_percentage=50.5" in said
    group = ("--entity-type", "groups", "--entity-name", client)
    said = tools.configs("--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    assert f"Completed updating config for group {client}." in said


@promise("K3", "K4", "K5", "K6", "K15")
def test_writing_reading_and_deleting(tools: Tools, tmp_path: Path) -> None:
    """Console producer and consumer, kafka-get-offsets, kafka-delete-records, kafka-log-dirs."""
    name = new_topic("console")
    tools.ask("TopicCommand", "--create", "--topic", name, "--partitions", "1", "--config", "compression.type=lz4")
    parsed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    lines = "".join(f"k{i}:v{i}\n" for i in range(5))
    tools.ask("ConsoleProducer", "--topic", name, *parsed, "--compression-codec", "gzip", given=lines)
    assert {batch.codec for batch in fetch_batches(tools.bootstrap, name, 0)} == {"lz4"}, "the topic's codec"
    wanted = json.dumps({"partitions": [{"topic": name, "partition": 0, "offset": 2}], "version": 1})
    (tmp_path / "delete.json").write_text(wanted)
    said = tools.ask("DeleteRecordsCommand", "--offset-json-file", str(tmp_path / "delete.json"))
    assert f"partition: {name}-0\tlow_watermark: 2" in said
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true")
    start = ("--topic", name, "--partition", "0", "--offset", "earliest", "--max-messages", "3")
    assert tools.ask("consumer.ConsoleConsumer", *start, *shown).splitlines() == [
        f"Offset:{i}\tk{i}\tv{i}" for i in (2, 3, 4)
    ]
    assert tools.ask("GetOffsetShell", "--topic", name).strip() == f"{name}:0:5"
    told = tools.ask("LogDirsCommand", "--describe", "--topic-list", name).splitlines()[-1]
    partitions = [p for b in json.loads(told)["brokers"] for d in b["logDirs"] for p in d["partitions"]]
    [only] = [p for p in partitions if p["partition"] == f"{name}-0"]
    assert only["size"] > 0 and not only["isFuture"] and only["offsetLag"] == 0


@promise("K3", "K14")
def test_producer_performance_under_a_quota(tools: Tools) -> None:
    """kafka-producer-perf-test, of a client that is asked for its metrics, and told to slow down.

    Quotas hold per broker, so there is one partition: what it takes in a burst goes to one broker.
    """
    name, topic = new_topic("metrics"), new_topic("quota")
    tools.ask("TopicCommand", "--create", "--topic", topic, "--partitions", "1", "--replication-factor", "1")
    options = ("--metrics", "org.apache.kafka.producer.", "--interval", "1000", "--match", f"client_id={name}")
    assert f"Altered client metrics config for {name}." in tools.ask(
        "ClientMetricsCommand", "--alter", "--name", name, *options
    )
    which = ("--entity-type", "clients", "--entity-name", name)
    tools.configs("--alter", *which, "--add-config", "producer_byte_rate=10000")
    amount = ("--num-records", "1200", "--record-size", "100", "--throughput", "-1", "--print-metrics")
    client = ("--producer-props", f"bootstrap.servers={tools.bootstrap}", f"client.id={name}", "batch.size=4000")
    said = tools.run("ProducerPerformance", "--topic", topic, *amount, *client)
    assert "1200 records sent" in said
    throttled = re.search(r"produce-throttle-time-max:\{client-id=\S+\}\s*: (\d+\.\d+)", said)
    assert throttled is not None and float(throttled.group(1)) > 0


@promise("K12")
def test_transactions(tools: Tools) -> None:
    """kafka-transactions lists and describes ids."""
    id = new_topic("tx")
    confluent_kafka.Producer({"bootstrap.servers": tools.bootstrap, "transactional.id": id}).init_transactions(600)
    assert re.search(rf"{id}\s+\d+\s+\d+\s+Empty", tools.ask("TransactionsCommand", "list"))
    said = tools.ask("TransactionsCommand", "describe", "--transactional-id", id)
    assert re.search(rf"\d+\s+{id}\s+\d+\s+0\s+Empty\s+60000\s+None", said)


@promise("K6")
def test_elections_and_reassignments(tools: Tools, topic: str, tmp_path: Path) -> None:
    """kafka-leader-election and kafka-reassign-partitions find everything in its place."""
    wanted = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert f"Valid replica already elected for partitions {topic}-0" in tools.ask("LeaderElectionCommand", *wanted)
    described = tools.ask("TopicCommand", "--describe", "--topic", topic)
    found = re.search(r"Partition: 0\tLeader: (\d+)\t", described)
    assert found is not None
    node = int(found.group(1))
    plan = tmp_path / "plan.json"
    for replica, said in ((node, "Successfully started partition reassignment"), (node + 77, "")):
        plan.write_text(
            json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [replica]}]})
        )
        file = ("--reassignment-json-file", str(plan))
        told = tools.ask("reassign.ReassignPartitionsCommand", "--execute", *file, fails=not said)
        assert said in told
        if said:
            told = tools.ask("reassign.ReassignPartitionsCommand", "--verify", *file)
            assert f"Reassignment of partition {topic}-0 is completed." in told


@promise("K1", "K2", "K6")
def test_the_cluster(tools: Tools) -> None:
    """kafka-broker-api-versions, kafka-features, kafka-cluster."""
    versions = tools.ask("BrokerApiVersionsCommand")
    for name in ("Produce(0)", "Fetch(1)", "DescribeLogDirs(35)", "ElectLeaders(43)", "AlterClientQuotas(49)"):
        assert re.search(rf"{re.escape(name)}: \d+( to \d+)? \[usable: \d+\]", versions), name
    features = re.findall(
        r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+SupportedMaxVersion: (\S+)\s+FinalizedVersionLevel: (\S+)",
        tools.ask("FeatureCommand", "describe"),
    )
    shown = {name: (low, high, final) for name, low, high, final in features}
    assert shown["headwater.level"] == ("1", str(LEVEL), str(LEVEL)) and shown["group.version"] == ("1", "1", "1")
    assert shown["metadata.version"] == ("4.3-IV0", "4.3-IV0", "4.3-IV0"), "tools know the version by its name"
    status = tools.ask("MetadataQuorumCommand", "describe", "--status")
    found = dict(re.findall(r"^(\w+):\s+(\S.*)$", status, re.M))
    assert int(found["HighWatermark"]) > 0 and (found["MaxFollowerLag"], found["CurrentObservers"]) == ("0", "[]")
    assert f'"id": {found["LeaderId"]}' in found["CurrentVoters"]
    rows = tools.ask("MetadataQuorumCommand", "describe", "--replication").splitlines()[1:]
    assert rows and {row.split()[3] for row in rows} == {"0"}, "nothing lags"
    assert [row.split()[0] for row in rows if row.split()[-1] == "Leader"] == [found["LeaderId"]]
    cluster = tools.run("ClusterTool", "cluster-id", "--bootstrap-server", tools.bootstrap)
    assert re.fullmatch(r"Cluster ID: \S{22}\n", cluster)


def test_how_a_tool_ends_is_told(tools: Tools) -> None:
    """What this module stands on: exit codes and both outputs; and the next tool is not disturbed."""
    assert "is not a recognized option" in tools.run("TopicCommand", "--nonsense", fails=True)
    assert "MissingTool" in tools.run("org.example.MissingTool", fails=True)
    assert "Cluster ID: " in tools.run("ClusterTool", "cluster-id", "--bootstrap-server", tools.bootstrap)
