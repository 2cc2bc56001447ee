import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Java producers at full speed: a plain one, an idempotent one and a transactional one, in one JVM.
 *
 * <p>Arguments: bootstrap, topic of the first two, topic of the transactional one, partitions, record size. The third
 * word of each of its {@link Turns} says how to send: {@code plain}, {@code idempotent}, the length of a transaction in
 * milliseconds, or {@code small} for transactions with a record for each partition, one after the other. So ways that
 * are compared share a JVM and take turns within seconds.
 *
 * <p>Records are counted when they are acknowledged. A turn is made of rounds; a round with transactions ends with a
 * commit. All records are flushed before a commit is timed, so that its time is that of EndTxn.
 */
public final class TransactionalProducer {
    private static final int LOOK_RECORDS = 50;
    private static final long ROUND_NANOS = 100_000_000L;

    private final KafkaProducer<byte[], byte[]> plain;
    private final KafkaProducer<byte[], byte[]> idempotent;
    private final KafkaProducer<byte[], byte[]> transactional;
    private final String topic;
    private final String committed;
    private final int partitions;
    private final byte[] value;
    private final AtomicLong acknowledged = new AtomicLong();
    private final AtomicReference<Exception> failure = new AtomicReference<>();
    private final Callback count = (metadata, error) -> {
        if (error == null) {
            acknowledged.incrementAndGet();
        } else {
            failure.compareAndSet(null, error);
        }
    };

    private TransactionalProducer(String[] args) {
        plain = producer(args[0], "enable.idempotence", "false");
        idempotent = producer(args[0], "enable.idempotence", "true");
        transactional = producer(args[0], "transactional.id", args[2]);
        topic = args[1];
        committed = args[2];
        partitions = Integer.parseInt(args[3]);
        value = new byte[Integer.parseInt(args[4])];
        new Random(1).nextBytes(value);
        plain.partitionsFor(topic);
        idempotent.partitionsFor(topic);
        transactional.partitionsFor(committed);
        transactional.initTransactions();
    }

    public static void main(String[] args) throws Exception {
        Turns.serve(new TransactionalProducer(args)::take);
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String key, String setting) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        settings.put("acks", "all");
        settings.put(key, setting);
        return new KafkaProducer<>(settings);
    }

    private String take(long leadNanos, long countedNanos, String way) throws Exception {
        switch (way) {
            case "plain":
                return rounds(plain, ROUND_NANOS, leadNanos, countedNanos);
            case "idempotent":
                return rounds(idempotent, ROUND_NANOS, leadNanos, countedNanos);
            case "small":
                return rounds(transactional, 0, leadNanos, countedNanos);
            default:
                return rounds(transactional, Long.parseLong(way) * 1_000_000L, leadNanos, countedNanos);
        }
    }

    private String rounds(KafkaProducer<byte[], byte[]> producer, long roundNanos, long leadNanos, long countedNanos)
            throws Exception {
        acknowledged.set(0);
        long lead = System.nanoTime() + leadNanos;
        long counting = 0; // the end of the first round that ends after the lead
        long before = 0;
        List<Long> ends = new ArrayList<>();
        long now = 0;
        while (counting == 0 || now < counting + countedNanos) {
            long end = round(producer, roundNanos);
            if (failure.get() != null) {
                throw failure.get();
            }
            now = System.nanoTime();
            if (counting != 0 && producer == transactional) {
                ends.add(end);
            } else if (counting == 0 && now >= lead) {
                before = acknowledged.get();
                counting = now;
            }
        }
        long count = acknowledged.get() - before;
        producer.flush();
        ends.sort(null);
        return String.format(
                Locale.ROOT,
                "{\"records\":%d,\"bytes\":%d,\"seconds\":%.6f,\"total_bytes\":%d,"
                        + "\"transactions\":%d,\"p50_ms\":%.3f,\"p99_ms\":%.3f}",
                count,
                count * value.length,
                (now - counting) / 1e9,
                acknowledged.get() * value.length,
                ends.size(),
                percentile(ends, 50),
                percentile(ends, 99));
    }

    /** Sends for so long, or a record to each partition. Returns how long the commit took, if there was one. */
    private long round(KafkaProducer<byte[], byte[]> producer, long nanos) {
        String to = producer == transactional ? committed : topic;
        if (producer == transactional) {
            producer.beginTransaction();
        }
        if (nanos == 0) {
            for (int partition = 0; partition < partitions; partition++) {
                producer.send(new ProducerRecord<>(to, partition, null, value), count);
            }
        }
        for (long until = System.nanoTime() + nanos; nanos > 0 && System.nanoTime() < until; ) {
            for (int i = 0; i < LOOK_RECORDS; i++) {
                producer.send(new ProducerRecord<>(to, value), count);
            }
        }
        if (producer != transactional) {
            return 0;
        }
        producer.flush();
        long began = System.nanoTime();
        producer.commitTransaction();
        return System.nanoTime() - began;
    }

    private static double percentile(List<Long> sorted, double percent) {
        int rank = (int) Math.ceil(percent / 100 * sorted.size());
        return sorted.isEmpty() ? 0 : sorted.get(Math.max(rank, 1) - 1) / 1e6;
    }
}
