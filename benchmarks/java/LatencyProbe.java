import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
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
 * <p>Arguments: bootstrap, topic, records per second, record size, warm-up seconds, measured seconds,
 * linger.ms or {@code default}. The schedule is open: every millisecond the records due are sent, stamped
 * with the time at which they were due and not with that of the call, so that a producer held up by its
 * server counts the wait (no coordinated omission). Prints {@code warm} when both clients are connected,
 * waits for a line on stdin, runs, and prints one line of JSON; records due in the warm-up are not counted.
 */
public final class LatencyProbe {
    private static final long TICK_NANOS = 1_000_000L;
    private static final long STALLED_NANOS = 30_000_000_000L;

    private final String bootstrap;
    private final String topic;
    private final long rate;
    private final int size;
    private final long warmRecords;
    private final long totalRecords;
    private final long[] latencies;
    private final CountDownLatch connected = new CountDownLatch(1);
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    private LatencyProbe(String[] args) {
        bootstrap = args[0];
        topic = args[1];
        rate = Long.parseLong(args[2]);
        size = Integer.parseInt(args[3]);
        warmRecords = rate * Long.parseLong(args[4]);
        totalRecords = warmRecords + rate * Long.parseLong(args[5]);
        latencies = new long[Math.toIntExact(totalRecords - warmRecords)];
    }

    public static void main(String[] args) throws Exception {
        LatencyProbe probe = new LatencyProbe(args);
        Thread consumer = new Thread(probe::consume, "latency-consumer");
        consumer.setDaemon(true);
        consumer.start();
        probe.connected.await();
        double seconds = probe.failure.get() == null ? probe.produce(args[6]) : 0;
        consumer.join();
        if (probe.failure.get() != null) {
            throw new IllegalStateException("the latency probe failed", probe.failure.get());
        }
        probe.print(seconds);
    }

    private double produce(String linger) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        settings.put("acks", "all");
        if (!linger.equals("default")) {
            settings.put("linger.ms", linger);
        }
        byte[] filler = new byte[size];
        new Random(1).nextBytes(filler);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.partitionsFor(topic);
            System.out.println("warm");
            System.in.read();
            long start = System.nanoTime();
            long sent = 0;
            for (long tick = 0; sent < totalRecords; tick++) {
                long due = start + tick * TICK_NANOS;
                for (long wait = due - System.nanoTime(); wait > 0; wait = due - System.nanoTime()) {
                    LockSupport.parkNanos(wait);
                }
                long target = Math.min(totalRecords, (tick + 1) * rate / 1000);
                for (; sent < target; sent++) {
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
            return (System.nanoTime() - start) / 1e9;
        }
    }

    private void consume() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                    .map(info -> new TopicPartition(topic, info.partition()))
                    .collect(Collectors.toList());
            consumer.assign(partitions);
            consumer.seekToEnd(partitions);
            partitions.forEach(consumer::position);
            connected.countDown();
            long progress = 0;
            for (long count = 0; count < totalRecords && failure.get() == null; ) {
                long before = count;
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    ByteBuffer value = ByteBuffer.wrap(record.value());
                    long latency = System.nanoTime() - value.getLong();
                    long number = value.getLong();
                    if (number >= warmRecords) {
                        latencies[Math.toIntExact(number - warmRecords)] = latency;
                    }
                    count++;
                }
                long now = System.nanoTime();
                // Before the first record there is no deadline: the harness has not said go yet.
                if (count > before) {
                    progress = now;
                } else if (count > 0 && now - progress > STALLED_NANOS) {
                    throw new IllegalStateException("no record for 30 s after " + count + " of " + totalRecords);
                }
            }
        } catch (Throwable error) {
            failure.compareAndSet(null, error);
        } finally {
            connected.countDown();
        }
    }

    private void print(double seconds) {
        Arrays.sort(latencies);
        if (latencies[0] <= 0) {
            throw new IllegalStateException("a record was delivered twice and another not at all");
        }
        System.out.printf(
                Locale.ROOT,
                "{\"records\":%d,\"bytes\":%d,\"seconds\":%.6f,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"p999_ms\":%.3f,\"max_ms\":%.3f}%n",
                totalRecords,
                totalRecords * size,
                seconds,
                percentile(50),
                percentile(99),
                percentile(99.9),
                percentile(100));
    }

    /** The nearest-rank percentile of the sorted latencies, in milliseconds. */
    private double percentile(double percent) {
        int rank = (int) Math.ceil(percent / 100 * latencies.length);
        return latencies[Math.max(rank, 1) - 1] / 1e6;
    }
}
