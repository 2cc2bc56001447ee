import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Members that are consumers of the Java client, behind the line protocol of tests/compat/members/common.py. */
public final class GroupMembers {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[arguments.length - 1];
        Map<String, Member> members = new HashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode request = JSON.readTree(line);
            String name = request.get("member").asText();
            if (request.get("do").asText().equals("leave")) {
                members.get(name).leaving = true;
            } else {
                Member member = new Member(bootstrap, name, request);
                members.put(name, member);
                Thread thread = new Thread(member, name);
                thread.setDaemon(true);
                thread.start();
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static final class Member implements Runnable, ConsumerRebalanceListener {
        private final String name;
        private final String topic;
        private final Properties settings = new Properties();
        private final TreeSet<Integer> partitions = new TreeSet<>();
        private final Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        volatile boolean leaving;

        Member(String bootstrap, String name, JsonNode request) {
            this.name = name;
            this.topic = request.get("topic").asText();
            String assignor = request.get("assignor").asText();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("group.id", request.get("group").asText());
            settings.put("enable.auto.commit", "false");
            settings.put("auto.offset.reset", "earliest");
            settings.put("metadata.max.age.ms", "1000");
            settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
            settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
            if (!request.get("instance").isNull()) {
                settings.put("group.instance.id", request.get("instance").asText());
            }
            if (request.get("protocol").asText().equals("consumer")) {
                settings.put("group.protocol", "consumer");
                settings.put("group.remote.assignor", assignor);
            } else {
                settings.put("session.timeout.ms", request.get("session_ms").asText());
                settings.put("heartbeat.interval.ms", "1000");
                settings.put("partition.assignment.strategy", ASSIGNORS.get(assignor));
            }
        }

        @Override
        public void run() {
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
                consumer.subscribe(List.of(topic), this);
                while (!leaving) {
                    poll(consumer);
                }
            } catch (RuntimeException error) {
                say(Map.of("event", "failed", "why", error.toString()));
                return;
            }
            say(Map.of("event", "left"));
        }

        private void poll(KafkaConsumer<byte[], byte[]> consumer) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                say(Map.of("event", "record", "partition", record.partition(), "offset", record.offset()));
                ends.put(new TopicPartition(topic, record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            if (ends.isEmpty()) {
                return;
            }
            try {
                consumer.commitSync(ends);
                Map<Integer, Long> told = new TreeMap<>();
                ends.forEach((place, end) -> told.put(place.partition(), end.offset()));
                ends.clear();
                say(Map.of("event", "committed", "offsets", told));
            } catch (KafkaException error) {
                say(Map.of("event", "uncommitted", "why", error.toString()));
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> added) {
            added.forEach(each -> partitions.add(each.partition()));
            say(Map.of("event", "assignment", "partitions", partitions));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> taken) {
            taken.forEach(each -> partitions.remove(each.partition()));
            ends.keySet().removeAll(taken);
            say(Map.of("event", "assignment", "partitions", partitions));
        }

        private void say(Map<String, Object> what) {
            Map<String, Object> line = new HashMap<>(what);
            line.put("member", name);
            synchronized (JSON) {
                try {
                    System.out.println(JSON.writeValueAsString(line));
                } catch (java.io.IOException error) {
                    throw new java.io.UncheckedIOException(error);
                }
            }
        }
    }
}
