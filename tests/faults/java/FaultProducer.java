import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What tests/faults/producing.py is, with Apache Kafka's client. */
public class FaultProducer {
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        int count = Integer.parseInt(args[4]);
        AtomicReference<Exception> failed = new AtomicReference<>();
        Map<String, Object> config = Map.of("bootstrap.servers", args[0], "linger.ms", 5, "client.id", args[3]);
        try (var out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(args[5]), 16000));
             var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.partitionsFor(topic);
            System.out.println("ready");
            new BufferedReader(new InputStreamReader(System.in)).readLine();
            for (int i = 0; i < count && failed.get() == null; i++) {
                int counter = i;
                byte[] start = (args[3] + ":" + i + ":").getBytes(StandardCharsets.UTF_8);
                byte[] value = Arrays.copyOf(start, 100);
                Arrays.fill(value, start.length, value.length, (byte) '.');
                producer.send(new ProducerRecord<>(topic, i % partitions, null, value), (metadata, error) -> {
                    try {
                        if (error != null) {
                            failed.compareAndSet(null, error);
                            return;
                        }
                        out.writeInt(metadata.partition());
                        out.writeInt(counter);
                        out.writeLong(metadata.offset());
                    } catch (Exception e) {
                        failed.compareAndSet(null, e);
                    }
                });
            }
            producer.flush();
        }
        if (failed.get() != null) {
            throw failed.get();
        }
    }
}
