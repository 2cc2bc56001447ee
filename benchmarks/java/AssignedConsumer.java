import java.time.Duration;
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
 * end of the log. From the beginning, it begins again when it reaches what was the end of the log.
 */
public final class AssignedConsumer {
    private static final long STALLED_NANOS = 30_000_000_000L;

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final List<TopicPartition> partitions;
    private final boolean fromBeginning;

    private AssignedConsumer(KafkaConsumer<byte[], byte[]> consumer, String topic, boolean fromBeginning) {
        this.consumer = consumer;
        this.fromBeginning = fromBeginning;
        partitions = consumer.partitionsFor(topic).stream()
                .map(info -> new TopicPartition(topic, info.partition()))
                .collect(Collectors.toList());
        consumer.assign(partitions);
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            Turns.serve(new AssignedConsumer(consumer, args[1], args[2].equals("beginning"))::read);
        }
    }

    private String read(long leadNanos, long countedNanos) {
        long left = seek();
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
            left -= count - before;
            if (fromBeginning && left <= 0) {
                left = seek();
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

    /** Goes to the beginning or the end of the log. Returns how many records there are from there to the end. */
    private long seek() {
        if (fromBeginning) {
            consumer.seekToBeginning(partitions);
        } else {
            consumer.seekToEnd(partitions);
        }
        // position() makes the client look the offsets up now, not in a poll.
        Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
        return partitions.stream().mapToLong(one -> ends.get(one) - consumer.position(one)).sum();
    }
}
