import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * End-to-end latency at a fixed rate: a paced producer and a consumer assigned by hand, in one JVM.
 *
 * <p>Arguments: bootstrap, topic, records per second, record size, linger.ms or {@code default}. The schedule of each of
 * its {@link Turns} is open: every millisecond the records due are sent, stamped with the time at which they were due
 * and not with that of the call, so that a producer held up by its server counts the wait (no coordinated omission).
 * Records due before the counted time are not among the latencies.
 */
public final class LatencyProbe {
    private static final long TICK_NANOS = 1_000_000L;
    private static final long STALLED_NANOS = 30_000_000_000L;

    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final String topic;
    private final long rate;
    private final byte[] filler;
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    private LatencyProbe(
            KafkaProducer<byte[], byte[]> producer, KafkaConsumer<byte[], byte[]> consumer, String[] args) {
        this.producer = producer;
        this.consumer = consumer;
        topic = args[1];
        rate = Long.parseLong(args[2]);
        filler = new byte[Integer.parseInt(args[3])];
        new Random(1).nextBytes(filler);
        producer.partitionsFor(topic);
        consumer.assign(consumer.partitionsFor(topic).stream()
                .map(info -> new TopicPartition(topic, info.partition()))
                .collect(Collectors.toList()));
    }

    public static void main(String[] args) throws Exception {
        Properties sending = new Properties();
        sending.put("bootstrap.servers", args[0]);
        sending.put("key.serializer", ByteArraySerializer.class.getName());
        sending.put("value.serializer", ByteArraySerializer.class.getName());
        sending.put("acks", "all");
        if (!args[4].equals("default")) {
            sending.put("linger.ms", args[4]);
        }
        Properties reading = new Properties();
        reading.put("bootstrap.servers", args[0]);
        reading.put("key.deserializer", ByteArrayDeserializer.class.getName());
        reading.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(sending);
                KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(reading)) {
            Turns.serve(new LatencyProbe(producer, consumer, args)::take);
        }
    }

    private String take(long leadNanos, long countedNanos, String way) throws Exception {
        int early = Math.toIntExact(rate * leadNanos / 1_000_000_000L);
        int all = early + Math.toIntExact(rate * countedNanos / 1_000_000_000L);
        long[] latencies = new long[all - early];
        consumer.seekToEnd(consumer.assignment());
        consumer.assignment().forEach(consumer::position);
        // The consumer is used by one thread at a time: by this one until here, and again after the join.
        Thread reader = new Thread(() -> consume(latencies, early, all), "latency-consumer");
        reader.setDaemon(true);
        reader.start();
        double seconds = produce(early, all);
        reader.join();
        if (failure.get() != null) {
            throw new IllegalStateException("the latency probe failed", failure.get());
        }
        Arrays.sort(latencies);
        if (latencies[0] <= 0) {
            throw new IllegalStateException("a record was delivered twice and another not at all");
        }
        return String.format(
                Locale.ROOT,
                "{\"records\":%d,\"bytes\":%d,\"seconds\":%.6f,\"total_bytes\":%d,"
                        + "\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"p999_ms\":%.3f}",
                all - early,
                (long) (all - early) * filler.length,
                seconds,
                (long) all * filler.length,
                percentile(latencies, 50),
                percentile(latencies, 99),
                percentile(latencies, 99.9));
    }

    /** Sends the records of a turn; returns the seconds from the first that counts until all are acknowledged. */
    private double produce(int early, int all) {
        long start = System.nanoTime();
        long counting = start;
        int sent = 0;
        for (long tick = 0; sent < all && failure.get() == null; tick++) {
            long due = start + tick * TICK_NANOS;
            for (long wait = due - System.nanoTime(); wait > 0; wait = due - System.nanoTime()) {
                LockSupport.parkNanos(wait);
            }
            long target = Math.min(all, (tick + 1) * rate / 1000);
            for (; sent < target; sent++) {
                if (sent == early) {
                    counting = due;
                }
                byte[] value = filler.clone();
                ByteBuffer.wrap(value).putLong(due).putLong(sent);
                producer.send(new ProducerRecord<>(topic, value), (metadata, error) -> {
                    if (error != null) {
                        failure.compareAndSet(null, error);
                    }
                });
            }
        }
        producer.flush();
        return (System.nanoTime() - counting) / 1e9;
    }

    private void consume(long[] latencies, int early, int all) {
        try {
            long progress = System.nanoTime();
            for (int count = 0; count < all && failure.get() == null; ) {
                int before = count;
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    ByteBuffer value = ByteBuffer.wrap(record.value());
                    long latency = System.nanoTime() - value.getLong();
                    int number = Math.toIntExact(value.getLong());
                    if (number >= early) {
                        latencies[number - early] = latency;
                    }
                    count++;
                }
                long now = System.nanoTime();
                if (count > before) {
                    progress = now;
                } else if (now - progress > STALLED_NANOS) {
                    throw new IllegalStateException("no record for 30 s after " + count + " of " + all);
                }
            }
        } catch (Throwable error) {
            failure.compareAndSet(null, error);
        }
    }

    /** The nearest-rank percentile of sorted latencies, in milliseconds. */
    private static double percentile(long[] latencies, double percent) {
        int rank = (int) Math.ceil(percent / 100 * latencies.length);
        return latencies[Math.max(rank, 1) - 1] / 1e6;
    }
}
