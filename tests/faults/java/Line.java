import java.io.IOException;

/** What programs of this directory say, an event a line, and when they stop: at the end of their input. */
final class Line {
    private static volatile boolean stopping;

    private Line() {}

    static boolean stopping() {
        return stopping;
    }

    static void stopAtTheEndOfInput() {
        Thread reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException error) {
                say("undone", error);
            }
            stopping = true;
        });
        reader.setDaemon(true);
        reader.start();
    }

    static synchronized void say(String event, Object... more) {
        StringBuilder line = new StringBuilder(event);
        for (Object word : more) {
            line.append(' ').append(String.valueOf(word).replace('\n', ' '));
        }
        System.out.println(line);
    }
}
