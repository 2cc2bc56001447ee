import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** A source connector for Kafka Connect: the lines of a file, KEY and VALUE each. Its offset is the number of lines. */
public class LineSource extends SourceConnector {
    private static final int MOST = 50;
    private Map<String, String> config;

    @Override
    public String version() {
        return "1";
    }

    @Override
    public void start(Map<String, String> given) {
        config = given;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Lines.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int most) {
        return List.of(config);
    }

    @Override
    public void stop() {}

    @Override
    public ConfigDef config() {
        return new ConfigDef()
            .define("file", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "the file to read")
            .define("topic", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "the topic to write")
            .define("partitions", ConfigDef.Type.INT, ConfigDef.Importance.HIGH, "the partitions of the topic");
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> given) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    /** The one task. */
    public static class Lines extends SourceTask {
        private static final Map<String, String> PARTITION = Map.of("source", "lines");
        private Map<String, String> config;
        private long done;

        @Override
        public String version() {
            return "1";
        }

        @Override
        public void start(Map<String, String> given) {
            config = given;
            Map<String, Object> offset = context.offsetStorageReader().offset(PARTITION);
            done = offset == null ? 0 : (Long) offset.get("lines");
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            List<SourceRecord> found = new ArrayList<>();
            try (var lines = Files.lines(Path.of(config.get("file")))) {
                // The last line may be written at this moment: one that counts ends with a full stop.
                lines.skip(done).limit(MOST).takeWhile(line -> line.endsWith(".")).forEach(line -> {
                    String[] words = line.substring(0, line.length() - 1).split(" ");
                    int partition = Integer.parseInt(words[0]) % Integer.parseInt(config.get("partitions"));
                    found.add(new SourceRecord(
                        PARTITION, Map.of("lines", ++done), config.get("topic"), partition,
                        Schema.STRING_SCHEMA, words[0], Schema.STRING_SCHEMA, words[1]));
                });
            } catch (java.io.IOException error) {
                throw new org.apache.kafka.connect.errors.ConnectException(error);
            }
            if (found.isEmpty()) {
                Thread.sleep(50);
                return null;
            }
            return found;
        }

        @Override
        public void stop() {}
    }
}
