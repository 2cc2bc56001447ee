import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * The turns of a client: it prints {@code ready} when it is connected, then takes one turn for every line on stdin.
 *
 * <p>A line has two numbers: for how many milliseconds the load runs before it counts, and for how many it counts. A
 * third word says which load it is, if the client has several. The client answers with one line of JSON. The end of
 * stdin ends the client.
 */
final class Turns {
    /** One turn: load without counting, then count. Returns the line of JSON. */
    interface Turn {
        String take(long leadNanos, long countedNanos, String way) throws Exception;
    }

    private Turns() {}

    static void serve(Turn turn) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        System.out.println("ready");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.trim().split(" ");
            System.out.println(turn.take(nanos(words[0]), nanos(words[1]), words.length > 2 ? words[2] : ""));
        }
    }

    private static long nanos(String milliseconds) {
        return Long.parseLong(milliseconds) * 1_000_000L;
    }
}
