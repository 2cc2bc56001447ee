import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client behind the line protocol of tests/compat/program.py. Every call makes a client of its own. */
public class CompatClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final Map<String, Object> servers;

    private CompatClient(String bootstrap) {
        servers = Map.of("bootstrap.servers", bootstrap);
    }

    public static void main(String[] args) throws Exception {
        CompatClient client = new CompatClient(args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("ok", client.call(JSON.readTree(line)));
            } catch (Exception e) {
                e.printStackTrace();
                answer.put("error", e.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private Object call(JsonNode in) throws Exception {
        String topic = in.get("topic").asText();
        return switch (in.get("do").asText()) {
            case "create" -> create(topic, in.get("partitions").asInt());
            case "write" -> write(topic, in.get("partition").asInt(), in.get("codec").asText(), in.get("records"));
            case "read" -> read(topic, in.get("starts"), in.get("count").asInt(), in.get("timeout_ms").asLong());
            case "offset_for_time" ->
                offsetForTime(new TopicPartition(topic, in.get("partition").asInt()), in.get("timestamp").asLong());
            default -> throw new IllegalArgumentException("unknown request " + in);
        };
    }

    private Object create(String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(servers)) {
            admin.createTopics(List.of(new NewTopic(topic, Optional.of(partitions), Optional.empty()))).all().get();
            return null;
        }
    }

    private List<Long> write(String topic, int partition, String codec, JsonNode records) throws Exception {
        Map<String, Object> config = new HashMap<>(servers);
        config.put("compression.type", codec);
        config.put("linger.ms", 500);
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode each : records) {
                var record = new ProducerRecord<>(
                    topic, partition, each.get("timestamp").asLong(), bytes(each.get("key")), bytes(each.get("value")));
                for (JsonNode header : each.get("headers")) {
                    record.headers().add(header.get(0).asText(), bytes(header.get(1)));
                }
                sent.add(producer.send(record));
            }
            producer.flush();
            List<Long> offsets = new ArrayList<>();
            for (Future<RecordMetadata> each : sent) {
                offsets.add(each.get().offset());
            }
            return offsets;
        }
    }

    private List<Object> read(String topic, JsonNode starts, int count, long timeoutMs) {
        Map<TopicPartition, Long> from = new HashMap<>();
        starts.properties().forEach(
            start -> from.put(new TopicPartition(topic, Integer.parseInt(start.getKey())), start.getValue().asLong()));
        long deadline = System.nanoTime() + timeoutMs * 1_000_000;
        try (var consumer = consumer()) {
            consumer.assign(from.keySet());
            from.forEach(consumer::seek);
            List<Object> received = new ArrayList<>();
            while (received.size() < count) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("got " + received.size() + " of " + count + " records in time");
                }
                consumer.poll(Duration.ofMillis(200)).forEach(record -> received.add(encode(record)));
            }
            return received;
        }
    }

    private Long offsetForTime(TopicPartition partition, long timestamp) {
        try (var consumer = consumer()) {
            var found = consumer.offsetsForTimes(Map.of(partition, timestamp)).get(partition);
            return found == null ? null : found.offset();
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Map<String, Object> config = new HashMap<>(servers);
        config.put("enable.auto.commit", false);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static Map<String, Object> encode(ConsumerRecord<byte[], byte[]> record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            // Not List.of, which refuses a null value.
            headers.add(new String[] {header.key(), hex(header.value())});
        }
        Map<String, Object> encoded = new LinkedHashMap<>();
        encoded.put("partition", record.partition());
        encoded.put("offset", record.offset());
        encoded.put("timestamp", record.timestamp());
        encoded.put("key", hex(record.key()));
        encoded.put("value", hex(record.value()));
        encoded.put("headers", headers);
        return encoded;
    }

    private static byte[] bytes(JsonNode hex) {
        return hex.isNull() ? null : HexFormat.of().parseHex(hex.asText());
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }
}
