import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in one JVM, each as if it had one of its own.
 *
 * <p>A request on standard input: the number of words, the words (a class, then its arguments), and what the tool reads.
 * An answer on standard output: the exit code, standard output and standard error of the tool. Texts and bytes follow
 * their lengths, and all numbers have four bytes. The end of the input ends the program.
 */
public final class ToolLife {
    /** Thrown where a tool would end its JVM. */
    private static final class Left extends Error {
        private static final long serialVersionUID = 1L;
    }

    /** What tools write to. Some keep the stream that they found first, so it stays and its content goes. */
    private static final class Kept extends OutputStream {
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int one) {
            bytes.write(one);
        }

        @Override
        public synchronized void write(byte[] more, int from, int count) {
            bytes.write(more, from, count);
        }

        synchronized byte[] take() {
            byte[] all = bytes.toByteArray();
            bytes.reset();
            return all;
        }
    }

    private static Integer status;
    private static final List<Runnable> HOOKS = new ArrayList<>();

    private ToolLife() {}

    public static void main(String[] none) throws Exception {
        InputStream in = System.in;
        DataInputStream requests = new DataInputStream(new BufferedInputStream(in));
        OutputStream real = new FileOutputStream(FileDescriptor.out);
        DataOutputStream answers = new DataOutputStream(new BufferedOutputStream(real));
        Kept out = new Kept();
        Kept err = new Kept();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> leave(code));
        Exit.setHaltProcedure((code, message) -> leave(code));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        while (true) {
            String[] words;
            try {
                words = new String[requests.readInt()];
            } catch (EOFException end) {
                return;
            }
            for (int i = 0; i < words.length; i++) {
                words[i] = new String(bytes(requests), StandardCharsets.UTF_8);
            }
            System.setIn(new ByteArrayInputStream(bytes(requests)));
            answers.writeInt(run(words));
            for (Kept kept : List.of(out, err)) {
                byte[] said = kept.take();
                answers.writeInt(said.length);
                answers.write(said);
            }
            answers.flush();
        }
    }

    private static byte[] bytes(DataInputStream from) throws Exception {
        return from.readNBytes(from.readInt());
    }

    private static synchronized void leave(int code) {
        if (status == null) {
            status = code;
        }
        throw new Left();
    }

    /** The exit code of a tool. What it would do when its JVM ends is done before it is returned. */
    private static int run(String[] words) throws Exception {
        status = null;
        HOOKS.clear();
        String[] arguments = List.of(words).subList(1, words.length).toArray(new String[0]);
        int failed = 0;
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException ended) {
            if (!(ended.getCause() instanceof Left)) {
                ended.getCause().printStackTrace();
                failed = 1;
            }
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace();
            failed = 1;
        }
        for (Runnable hook : List.copyOf(HOOKS)) {
            hook.run();
        }
        System.out.flush();
        System.err.flush();
        return status == null ? failed : status;
    }
}
