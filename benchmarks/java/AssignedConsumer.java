import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic with the defaults of Kafka's Java consumer, with all partitions assigned by hand and no group.
 *
 * <p>Arguments: bootstrap, topic, {@code beginning|end}. Each of its {@link Turns} begins anew at the beginning or the
 * end of the log. From the beginning, it begins again when it reaches what was the end of the log. The third word of a
 * turn is an isolation level, {@code read_uncommitted} by default. There is a consumer for each.
 */
public final class AssignedConsumer {
    private static final long STALLED_NANOS = 30_000_000_000L;
    private static final int FULL_POLL = 500;
    private static final String UNCOMMITTED = "read_uncommitted";

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final List<TopicPartition> partitions;
    private final boolean fromBeginning;

    private AssignedConsumer(String[] args, String isolation) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("isolation.level", isolation);
        consumer = new KafkaConsumer<>(settings);
        fromBeginning = args[2].equals("beginning");
        partitions = consumer.partitionsFor(args[1]).stream()
                .map(info -> new TopicPartition(args[1], info.partition()))
                .collect(Collectors.toList());
        consumer.assign(partitions);
    }

    public static void main(String[] args) throws Exception {
        Map<String, AssignedConsumer> consumers = new HashMap<>();
        consumers.put(UNCOMMITTED, new AssignedConsumer(args, UNCOMMITTED));
        Turns.serve((lead, counted, way) -> consumers
                .computeIfAbsent(way.isEmpty() ? UNCOMMITTED : way, isolation -> new AssignedConsumer(args, isolation))
                .read(lead, counted));
    }

    private String read(long leadNanos, long countedNanos) {
        Map<TopicPartition, Long> ends = seek();
        long start = System.nanoTime();
        long counting = start + leadNanos;
        long last = counting + countedNanos;
        long count = 0;
        long bytes = 0;
        long countBefore = 0;
        long bytesBefore = 0;
        long progress = start;
        long now = start;
        while (now < last) {
            long before = count;
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                bytes += record.serializedValueSize();
                count++;
            }
            now = System.nanoTime();
            if (count > before) {
                progress = now;
            } else if (now - progress > STALLED_NANOS) {
                throw new IllegalStateException("no record for 30 s after " + count);
            }
            if (now < counting) {
                countBefore = count;
                bytesBefore = bytes;
            }
            // Ends of transactions have offsets too, so records are no measure. A full poll is not the last one.
            if (fromBeginning && count - before < FULL_POLL && atEnd(ends)) {
                ends = seek();
            }
        }
        return String.format(
                Locale.ROOT,
                "{\"records\":%d,\"bytes\":%d,\"seconds\":%.6f,\"total_bytes\":%d}",
                count - countBefore,
                bytes - bytesBefore,
                (now - counting) / 1e9,
                bytes);
    }

    private boolean atEnd(Map<TopicPartition, Long> ends) {
        return partitions.stream().allMatch(one -> consumer.position(one) >= ends.get(one));
    }

    /** Goes to the beginning or the end of the log. Returns where the partitions end. */
    private Map<TopicPartition, Long> seek() {
        if (fromBeginning) {
            consumer.seekToBeginning(partitions);
        } else {
            consumer.seekToEnd(partitions);
        }
        // position() makes the client look the offsets up now, not in a poll.
        partitions.forEach(consumer::position);
        return consumer.endOffsets(partitions);
    }
}
