import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The copier of tests/faults/copying.py with Apache Kafka's client. */
public class Copier {
    private final String id;
    private final String bootstrap;
    private final String timeoutMs;
    private final KafkaConsumer<String, String> consumer;
    private KafkaProducer<String, String> producer;
    private boolean first = true;

    Copier(String id, String group, String in, String timeoutMs, String bootstrap) {
        this.id = id;
        this.bootstrap = bootstrap;
        this.timeoutMs = timeoutMs;
        producer = initialized();
        consumer = new KafkaConsumer<>(
            Map.of(
                "bootstrap.servers", bootstrap, "group.id", group, "client.id", id, "enable.auto.commit", false,
                "auto.offset.reset", "earliest", "isolation.level", "read_committed", "max.poll.records", 100,
                "session.timeout.ms", 6000, "heartbeat.interval.ms", 1000),
            new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(Set.of(in));
    }

    public static void main(String[] args) throws Exception {
        Line.stopAtTheEndOfInput();
        new Copier(args[0], args[1], args[2], args[6], args[7])
            .copy(args[3], Integer.parseInt(args[4]), Integer.parseInt(args[5]));
        System.exit(0);
    }

    private void copy(String out, int partitions, int spoilEvery) {
        int number = 0;
        while (!Line.stopping()) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
            ready();
            if (records.isEmpty()) {
                continue;
            }
            boolean spoiled = ++number % spoilEvery == 0;
            try {
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    int partition = Integer.parseInt(record.key()) % partitions;
                    String value = (spoiled ? "!" : "") + record.value();
                    producer.send(new ProducerRecord<>(out, partition, record.key(), value));
                    TopicPartition from = new TopicPartition(record.topic(), record.partition());
                    ends.put(from, new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
                if (spoiled) {
                    producer.flush();  // else what was not sent yet never is
                    producer.abortTransaction();
                    Line.say("spoiled", records.count());
                    rewind();
                } else {
                    producer.commitTransaction();
                    Line.say("committed", records.count());
                }
            } catch (KafkaException error) {
                recover(error);
                rewind();
            }
        }
        producer.close();
        consumer.close();
    }

    private void ready() {
        if (first && !consumer.assignment().isEmpty()) {
            first = false;
            Line.say("ready");
        }
    }

    /** The transaction is aborted; if it cannot be, a new producer ends it. */
    private void recover(KafkaException error) {
        try {
            producer.abortTransaction();
            Line.say("undone", error);
        } catch (KafkaException | IllegalStateException fatal) {
            producer.close(Duration.ZERO);
            Line.say("renewed", error);
            producer = initialized();
        }
    }

    private KafkaProducer<String, String> initialized() {
        while (true) {
            KafkaProducer<String, String> made = new KafkaProducer<>(
                Map.of(
                    "bootstrap.servers", bootstrap, "transactional.id", id, "transaction.timeout.ms", timeoutMs,
                    "linger.ms", 5, "client.id", id),
                new StringSerializer(), new StringSerializer());
            try {
                made.initTransactions();
                return made;
            } catch (KafkaException error) {
                made.close(Duration.ZERO);
                Line.say("renewed", error);
            }
        }
    }

    private void rewind() {
        while (!Line.stopping()) {
            try {
                Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
                committed.forEach((partition, end) -> consumer.seek(partition, end == null ? 0 : end.offset()));
                return;
            } catch (KafkaException error) {
                Line.say("undone", error);
            }
        }
    }
}
