import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams with exactly_once_v2: a running sum per key, over a repartition topic and a store with a changelog.
 *
 * <p>RunningSum INSTANCE APPLICATION SOURCE TARGET TIMEOUT_MS DIRECTORY BOOTSTRAP. The source has a key and a number in
 * each record; sums are kept per key modulo 10. Each record of the source gives one of the target: COUNT:SUM. The
 * program says `ready` when it runs, `dead WHY` when a thread died and `state STATE` at changes. It ends well when its
 * input does.
 */
public class RunningSum {
    public static void main(String[] args) throws Exception {
        Line.stopAtTheEndOfInput();
        StreamsBuilder builder = new StreamsBuilder();
        var text = Serdes.String();
        builder.stream(args[2], Consumed.with(text, text))
            .groupBy((key, value) -> String.valueOf(Integer.parseInt(key) % 10), Grouped.with("by-digit", text, text))
            .aggregate(
                () -> "0:0",
                (key, value, sum) -> {
                    String[] parts = sum.split(":");
                    return (Long.parseLong(parts[0]) + 1) + ":" + (Long.parseLong(parts[1]) + Long.parseLong(value));
                },
                Materialized.<String, String>as(org.apache.kafka.streams.state.Stores.inMemoryKeyValueStore("sums"))
                    .withKeySerde(text).withValueSerde(text))
            .toStream()
            .to(args[3], Produced.with(text, text));
        Properties config = new Properties();
        config.putAll(Map.of(
            StreamsConfig.APPLICATION_ID_CONFIG, args[1],
            StreamsConfig.CLIENT_ID_CONFIG, args[0],
            StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[6],
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
            StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0,
            StreamsConfig.STATE_DIR_CONFIG, args[5],
            StreamsConfig.REPLICATION_FACTOR_CONFIG, 1));
        config.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), Integer.parseInt(args[4]));
        config.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        config.put(StreamsConfig.mainConsumerPrefix("session.timeout.ms"), 6000);
        config.put(StreamsConfig.mainConsumerPrefix("heartbeat.interval.ms"), 1000);
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(error -> {
            Line.say("dead", error, "because", error.getCause());
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            Line.say("state", now);
            if (now == KafkaStreams.State.RUNNING) {
                Line.say("ready");
            }
        });
        streams.start();
        while (!Line.stopping()) {
            Thread.sleep(50);
        }
        System.exit(streams.close(Duration.ofSeconds(30)) ? 0 : 1);
    }
}
