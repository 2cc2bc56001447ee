import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.ProducerIdAndEpoch;

/**
 * The sequence of Flink's sink: a transaction is written by one process and committed by another.
 *
 * <p>PreparedSink TOPIC PARTITIONS BOOTSTRAP, and a command a line:
 *
 * <pre>
 * write ID COUNT         begins a transaction, writes, flushes; says `prepared ID PRODUCER EPOCH`
 * commit ID PRODUCER EPOCH   takes the transaction over and commits it; says `committed ID` or `refused ID WHY`
 * abort ID               ends what is left of the id; says `aborted ID`
 * </pre>
 */
public class PreparedSink {
    public static void main(String[] args) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        int partitions = Integer.parseInt(args[1]);
        Line.say("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            String id = words[1];
            KafkaProducer<String, String> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", args[2], "transactional.id", id, "transaction.timeout.ms", 60000),
                new StringSerializer(), new StringSerializer());
            switch (words[0]) {
                case "write" -> {
                    producer.initTransactions();
                    producer.beginTransaction();
                    for (int i = 0; i < Integer.parseInt(words[2]); i++) {
                        producer.send(new ProducerRecord<>(args[0], i % partitions, id, String.valueOf(i)));
                    }
                    producer.flush();
                    var written = (ProducerIdAndEpoch) field("producerIdAndEpoch").get(manager(producer));
                    Line.say("prepared", id, written.producerId, written.epoch);
                    continue;  // nothing closes it: a checkpoint is over, the transaction is not
                }
                case "commit" -> {
                    resume(producer, Long.parseLong(words[2]), Short.parseShort(words[3]));
                    try {
                        producer.commitTransaction();
                        Line.say("committed", id);
                    } catch (KafkaException refused) {
                        Line.say("refused", id, refused);
                    }
                }
                default -> {
                    producer.initTransactions();
                    Line.say("aborted", id);
                }
            }
            producer.close(Duration.ZERO);
        }
        System.exit(0);
    }

    /** The producer is in the transaction of another, as Flink's committer does it. */
    private static void resume(KafkaProducer<?, ?> producer, long id, short epoch) throws Exception {
        Object manager = manager(producer);
        synchronized (manager) {
            enter(manager, "INITIALIZING");
            Object sequences = field("txnPartitionMap").get(manager);
            Method reset = sequences.getClass().getDeclaredMethod("reset");
            reset.setAccessible(true);
            reset.invoke(sequences);
            field("producerIdAndEpoch").set(manager, new ProducerIdAndEpoch(id, epoch));
            enter(manager, "READY");
            enter(manager, "IN_TRANSACTION");
            field("transactionStarted").set(manager, true);
        }
    }

    private static Object manager(KafkaProducer<?, ?> producer) throws Exception {
        Field found = KafkaProducer.class.getDeclaredField("transactionManager");
        found.setAccessible(true);
        return found.get(producer);
    }

    private static Field field(String name) throws Exception {
        Field found = Class.forName(MANAGER).getDeclaredField(name);
        found.setAccessible(true);
        return found;
    }

    private static void enter(Object manager, String state) throws Exception {
        for (Object known : Class.forName(MANAGER + "$State").getEnumConstants()) {
            if (known.toString().equals(state)) {
                Method transition = manager.getClass().getDeclaredMethod("transitionTo", known.getClass());
                transition.setAccessible(true);
                transition.invoke(manager, known);
                return;
            }
        }
        throw new IllegalStateException("the client knows no state " + state);
    }

    private static final String MANAGER = "org.apache.kafka.clients.producer.internals.TransactionManager";
}
