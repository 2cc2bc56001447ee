package org.apache.kafka.common.test.junit;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.internals.Topic;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.plain.PlainLoginModule;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.apache.kafka.test.TestUtils;

/**
 * A Headwater for one test, started as the test's ClusterConfig says. What Kafka looks up inside of itself is asked for
 * here as any client would.
 */
class HeadwaterCluster implements ClusterInstance {
    private static final int CONTROLLER = 3000;
    private final ClusterConfig config;
    private final Map<Integer, HeadwaterBroker> nodes = new TreeMap<>();
    private String id = "";
    private List<?> adminPorts = List.of();
    private boolean started = false;
    private boolean stopped = false;

    HeadwaterCluster(ClusterConfig config) {
        this.config = config;
    }

    // --- life ----------------------------------------------------------------------------------------

    @Override
    public synchronized void start() {
        if (started) return;
        Map<String, Object> answer = Starter.ask("start", Map.of(
            "brokers", config.numBrokers(),
            "listener", config.brokerListenerName().value(),
            "protocol", config.brokerSecurityProtocol().name,
            "properties", config.serverProperties(),
            "each", config.perServerOverrideProperties(),
            "features", config.features().entrySet().stream()
                .collect(Collectors.toMap(entry -> entry.getKey().featureName(), Map.Entry::getValue))));
        List<?> ports = (List<?>) answer.get("ports");
        for (int node = 0; node < ports.size(); node++)
            nodes.put(node, new HeadwaterBroker(this, node, (Integer) ports.get(node)));
        adminPorts = (List<?>) answer.get("admin");
        if (!nodes.isEmpty()) prepare((Map<?, ?>) answer.get("configs"));
        started = true;
    }

    /** Learns the cluster's id, sets what is set while brokers run, and asks for metrics if a class receives them. */
    private void prepare(Map<?, ?> configs) {
        try (Admin admin = superUser()) {
            id = admin.describeCluster().clusterId().get();
            configure(admin, ConfigResource.Type.BROKER, "", configs);
            if (config.serverProperties().containsKey("metric.reporters"))
                configure(admin, ConfigResource.Type.CLIENT_METRICS, "all", Map.of("interval.ms", "60000"));
        } catch (ExecutionException | InterruptedException e) {
            throw new IllegalStateException("the brokers cannot be prepared", e);
        }
    }

    /** Who may do everything: anybody, unless rules count. */
    Admin superUser() {
        if (adminPorts.isEmpty()) return admin();
        return admin(Map.of(
            "bootstrap.servers", "127.0.0.1:" + adminPorts.get(0),
            "security.protocol", "SASL_PLAINTEXT",
            "sasl.mechanism", "PLAIN",
            "sasl.jaas.config", PlainLoginModule.class.getName() + " required username=\"" + JaasUtils.KAFKA_PLAIN_ADMIN
                + "\" password=\"" + JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD + "\";"));
    }

    private static void configure(Admin admin, ConfigResource.Type kind, String name, Map<?, ?> configs)
            throws ExecutionException, InterruptedException {
        List<AlterConfigOp> changes = configs.entrySet().stream()
            .map(one -> new ConfigEntry((String) one.getKey(), (String) one.getValue()))
            .map(entry -> new AlterConfigOp(entry, AlterConfigOp.OpType.SET)).toList();
        if (changes.isEmpty()) return;
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(kind, name), changes)).all().get();
    }

    @Override
    public synchronized void stop() {
        if (stopped) return;
        stopped = true;
        if (started) Starter.ask("stop", Map.of());
    }

    @Override
    public boolean started() {
        return started;
    }

    @Override
    public boolean stopped() {
        return stopped;
    }

    @Override
    public void shutdownBroker(int node) {
        nodes.get(node).shutdown();
    }

    @Override
    public void startBroker(int node) {
        nodes.get(node).startup();
    }

    @Override
    public void waitForReadyBrokers() throws InterruptedException {
        long alive = nodes.values().stream().filter(HeadwaterBroker::runs).count();
        waitUntil(admin -> admin.describeCluster().nodes().get().size() == alive, alive + " brokers are listed");
    }

    // --- what there is -------------------------------------------------------------------------------

    @Override
    public Type type() {
        return Type.KRAFT;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        return nodes.entrySet().stream()
            .collect(Collectors.toMap(Map.Entry::getKey, entry -> entry.getValue().asKafkas()));
    }

    /** Headwater has no controllers. Where rules are set through the one of Kafka, something stands in for it. */
    @Override
    public Map<Integer, ControllerServer> controllers() {
        return adminPorts.isEmpty() ? Map.of() : Map.of(CONTROLLER, HeadwaterRules.asController(this));
    }

    @Override
    public Set<Integer> controllerIds() {
        return Set.of();
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        return config.controllerListenerName();
    }

    @Override
    public String bootstrapServers() {
        return nodes.values().stream().map(node -> "127.0.0.1:" + node.port).collect(Collectors.joining(","));
    }

    @Override
    public String bootstrapControllers() {
        throw new UnsupportedOperationException("Headwater has no controllers");
    }

    @Override
    public List<Integer> controllerBoundPorts() {
        throw new UnsupportedOperationException("Headwater has no controllers");
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return nodes.values().stream().map(node -> node.port).toList();
    }

    @Override
    public String clusterId() {
        return id;
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        return Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER);
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    // --- waiting -------------------------------------------------------------------------------------

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        if (Topic.isInternal(topic)) return; // they are always there, with 50 partitions
        waitUntil(admin -> described(admin, topic).map(found -> found.partitions().size()).orElse(0) == partitions,
            topic + " has " + partitions + " partitions");
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        if (Topic.isInternal(topic)) return; // they stay
        waitUntil(admin -> described(admin, topic).isEmpty(), topic + " is gone");
    }

    @Override
    public void ensureConsistentMetadata() throws InterruptedException {
        // What a broker of Headwater has answered, the others answer too.
    }

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers) {
    }

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) throws InterruptedException {
        Set<AccessControlEntry> wanted = Set.copyOf(entries);
        waitUntil(admin -> HeadwaterRules.found(admin, filter).stream().map(AclBinding::entry)
            .collect(Collectors.toSet()).equals(wanted), "the rules are " + wanted);
    }

    /** A topic as clients see it; empty if there is none. */
    static Optional<TopicDescription> described(Admin admin, String topic)
            throws ExecutionException, InterruptedException {
        ListTopicsOptions all = new ListTopicsOptions().listInternal(true);
        if (!admin.listTopics(all).names().get().contains(topic)) return Optional.empty();
        return Optional.of(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic));
    }

    private interface Condition {
        boolean holds(Admin admin) throws ExecutionException, InterruptedException;
    }

    private void waitUntil(Condition condition, String what) throws InterruptedException {
        try (Admin admin = superUser()) {
            TestUtils.waitForCondition(() -> {
                try {
                    return condition.holds(admin);
                } catch (ExecutionException e) {
                    return false;
                }
            }, what);
        }
    }
}
