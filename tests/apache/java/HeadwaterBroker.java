package org.apache.kafka.common.test.junit;

import java.io.File;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.function.Function;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.mockito.Mockito;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** A broker of Headwater where a test wants one of Kafka: what can be asked from outside is answered, nothing else. */
class HeadwaterBroker {
    final int port;
    private final HeadwaterCluster cluster;
    private final int node;
    private final KafkaBroker broker;
    private boolean runs = true;

    HeadwaterBroker(HeadwaterCluster cluster, int node, int port) {
        this.cluster = cluster;
        this.node = node;
        this.port = port;
        this.broker = proxy(KafkaBroker.class, this::ofBroker);
    }

    KafkaBroker asKafkas() {
        return broker;
    }

    boolean runs() {
        return runs;
    }

    void shutdown() {
        if (runs) Starter.ask("stop-broker", Map.of("node", node));
        runs = false;
    }

    void startup() {
        if (!runs) Starter.ask("start-broker", Map.of("node", node));
        runs = true;
    }

    private Object ofBroker(String name, Object... given) throws Exception {
        switch (name) {
            case "shutdown": shutdown(); return null;
            case "startup": startup(); return null;
            case "awaitShutdown": return null;
            case "isShutdown": return !runs;
            case "brokerState": return runs ? BrokerState.RUNNING : BrokerState.SHUTTING_DOWN;
            case "boundPort": return port;
            case "clusterId": return cluster.clusterId();
            case "config": return config();
            case "metadataCache": return proxy(MetadataCache.class, this::ofMetadata);
            case "logManager": return standIn(LogManager.class, this::ofLogs);
            case "replicaManager": return standIn(ReplicaManager.class, this::ofReplicas);
            case "groupCoordinator": return proxy(GroupCoordinator.class, this::ofGroups);
            default: throw unknown(name);
        }
    }

    private Object ofGroups(String name, Object... given) {
        if (name.equals("groupMetadataTopicConfigs")) return new Properties();
        throw unknown(name);
    }

    /** Every broker serves every partition, and keeps nothing in directories of its own. */
    private Object ofLogs(String name, Object... given) throws Exception {
        return switch (name) {
            case "getLog" -> ifThere((TopicPartition) given[0], this::log);
            case "liveLogDirs" -> CollectionConverters.asScala(List.<File>of()).toSeq();
            default -> throw unknown(name);
        };
    }

    private Object ofReplicas(String name, Object... given) throws Exception {
        return switch (name) {
            case "onlinePartition" -> ifThere((TopicPartition) given[0], this::partition);
            case "localLog" -> ifThere((TopicPartition) given[0], this::log);
            default -> throw unknown(name);
        };
    }

    private Partition partition(TopicPartition wanted) {
        return standIn(Partition.class, (name, given) -> {
            if (!name.equals("leaderIdIfLocal")) throw unknown(name);
            return cluster.getLeaderBrokerId(wanted) == node ? Option.apply(node) : Option.empty();
        });
    }

    private UnifiedLog log(TopicPartition wanted) {
        return standIn(UnifiedLog.class, (name, given) -> {
            if (!name.equals("highWatermark")) throw unknown(name);
            try (Admin admin = cluster.admin()) {
                return admin.listOffsets(Map.of(wanted, OffsetSpec.latest())).partitionResult(wanted).get().offset();
            }
        });
    }

    private <T> Option<T> ifThere(TopicPartition wanted, Function<TopicPartition, T> found) throws Exception {
        try (Admin admin = cluster.admin()) {
            return HeadwaterCluster.described(admin, wanted.topic())
                .filter(topic -> wanted.partition() < topic.partitions().size())
                .map(topic -> Option.apply(found.apply(wanted))).orElse(Option.empty());
        }
    }

    private Object ofMetadata(String name, Object... given) throws Exception {
        try (Admin admin = cluster.admin()) {
            switch (name) {
                case "numPartitions":
                    return HeadwaterCluster.described(admin, (String) given[0]).map(topic -> topic.partitions().size());
                case "contains":
                    if (given[0] instanceof String topic) return HeadwaterCluster.described(admin, topic).isPresent();
                    throw unknown(name);
                case "getLeaderAndIsr":
                    Optional<TopicDescription> found = HeadwaterCluster.described(admin, (String) given[0]);
                    int partition = (Integer) given[1];
                    return found.filter(topic -> partition < topic.partitions().size())
                        .map(topic -> topic.partitions().get(partition))
                        .map(one -> new LeaderAndIsr(one.leader().id(), one.isr().stream().map(Node::id).toList()));
                case "getAliveBrokerNodes":
                    return List.copyOf(admin.describeCluster().nodes().get());
                default: throw unknown(name);
            }
        }
    }

    /** The properties of the test, with what is fixed in Headwater. */
    private KafkaConfig config() {
        Map<String, String> properties = new HashMap<>(cluster.config().serverProperties());
        properties.putAll(cluster.config().perServerOverrideProperties().getOrDefault(node, Map.of()));
        String listener = cluster.config().brokerListenerName().value();
        String protocol = cluster.config().brokerSecurityProtocol().name;
        properties.putAll(Map.of(
            "process.roles", "broker",
            "node.id", Integer.toString(node),
            "controller.quorum.bootstrap.servers", "127.0.0.1:9",
            "controller.listener.names", "CONTROLLER",
            "listener.security.protocol.map", "CONTROLLER:PLAINTEXT," + listener + ":" + protocol,
            "inter.broker.listener.name", listener,
            "listeners", listener + "://127.0.0.1:" + port));
        for (String topic : List.of("offsets.topic", "transaction.state.log")) {
            properties.put(topic + ".num.partitions", "50");
            properties.put(topic + ".replication.factor", "1");
        }
        return KafkaConfig.fromProps(asProperties(properties));
    }

    private static Properties asProperties(Map<String, String> given) {
        Properties properties = new Properties();
        properties.putAll(given);
        return properties;
    }

    interface Answers {
        Object of(String name, Object... given) throws Exception;
    }

    static <T> T proxy(Class<T> kind, Answers answers) {
        InvocationHandler handler = (self, method, given) -> switch (method.getName()) {
            case "hashCode" -> System.identityHashCode(self);
            case "equals" -> self == given[0];
            case "toString" -> kind.getSimpleName() + " of Headwater";
            default -> answers.of(method.getName(), given == null ? new Object[0] : given);
        };
        return kind.cast(Proxy.newProxyInstance(kind.getClassLoader(), new Class<?>[] {kind}, handler));
    }

    /** As `proxy`, for a class. */
    static <T> T standIn(Class<T> kind, Answers answers) {
        return Mockito.mock(kind, asked -> {
            String name = asked.getMethod().getName();
            if (name.equals("toString")) return kind.getSimpleName() + " of Headwater";
            return answers.of(name, asked.getArguments());
        });
    }

    static UnsupportedOperationException unknown(String name) {
        return new UnsupportedOperationException("the test looks inside Kafka's broker: " + name);
    }
}
