import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic with the defaults of Kafka's Java consumer, with all partitions assigned by hand and no group.
 *
 * <p>Arguments: bootstrap, warm-up topic, warm-up records, topic, records, {@code beginning|end}. It first
 * reads the warm-up topic (so that the JVM is compiled and the connection open), prints {@code warm}, waits
 * for a line on stdin, then reads {@code records} records and prints one line of JSON. From the beginning the
 * clock starts at the first poll; from the end it starts at the first record, because the producer that
 * writes them starts later.
 */
public final class AssignedConsumer {
    private static final long STALLED_NANOS = 30_000_000_000L;

    private final KafkaConsumer<byte[], byte[]> consumer;
    private long bytes;
    private long firstNanos;
    private long lastNanos;

    private AssignedConsumer(KafkaConsumer<byte[], byte[]> consumer) {
        this.consumer = consumer;
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        long warmRecords = Long.parseLong(args[2]);
        long records = Long.parseLong(args[4]);
        boolean fromBeginning = args[5].equals("beginning");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            AssignedConsumer reader = new AssignedConsumer(consumer);
            reader.assign(args[1], true);
            reader.read(warmRecords);
            reader.assign(args[3], fromBeginning);
            System.out.println("warm");
            System.in.read();
            long start = System.nanoTime();
            long count = reader.read(records);
            double seconds = (reader.lastNanos - (fromBeginning ? start : reader.firstNanos)) / 1e9;
            System.out.printf(
                    Locale.ROOT, "{\"records\":%d,\"bytes\":%d,\"seconds\":%.6f}%n", count, reader.bytes, seconds);
        }
    }

    private void assign(String topic, boolean fromBeginning) {
        List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(info -> new TopicPartition(topic, info.partition()))
                .collect(Collectors.toList());
        consumer.assign(partitions);
        if (fromBeginning) {
            consumer.seekToBeginning(partitions);
        } else {
            consumer.seekToEnd(partitions);
        }
        // position() makes the client look the offsets up now, not in the first measured poll.
        partitions.forEach(consumer::position);
    }

    private long read(long records) {
        bytes = 0;
        firstNanos = 0;
        long count = 0;
        long progress = System.nanoTime();
        while (count < records) {
            long before = count;
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                bytes += record.serializedValueSize();
                count++;
            }
            lastNanos = System.nanoTime();
            if (count > before) {
                progress = lastNanos;
                firstNanos = before == 0 ? lastNanos : firstNanos;
            } else if (lastNanos - progress > STALLED_NANOS) {
                throw new IllegalStateException("no record for 30 s after " + count + " of " + records);
            }
        }
        return count;
    }
}
