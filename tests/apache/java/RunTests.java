package org.apache.kafka.common.test.junit;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Predicate;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.TestSource;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.TestPlan;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs tests of JUnit: DIRECTORY CLASS... The file `wanted` in the directory has a test a line, Class.method; if it is
 * empty, all are run. The file `all` is written with all tests that there are. A line of JSON in `results` tells how a
 * run of a test ended.
 */
public final class RunTests implements TestExecutionListener {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int TRACE = 30;
    private final Map<String, Long> begun = new ConcurrentHashMap<>();
    private final PrintStream results;

    private RunTests(PrintStream results) {
        this.results = results;
    }

    public static void main(String[] words) throws IOException {
        Path directory = Path.of(words[0]);
        Set<String> wanted = Set.copyOf(Files.readAllLines(directory.resolve("wanted")));
        Set<String> all = new TreeSet<>();
        Launcher launcher = LauncherFactory.create();
        TestPlan plan = launcher.discover(request(Arrays.copyOfRange(words, 1, words.length), name -> {
            all.add(name);
            return wanted.isEmpty() || wanted.contains(name);
        }));
        Files.write(directory.resolve("all"), all);
        try (PrintStream results = new PrintStream(directory.resolve("results").toFile())) {
            launcher.execute(plan, new RunTests(results));
        }
        System.exit(0); // threads that a test has left behind do not count
    }

    private static LauncherDiscoveryRequest request(String[] classes, Predicate<String> wanted) {
        PostDiscoveryFilter filter = found -> FilterResult.includedIf(
            nameOf(found.getSource()).map(wanted::test).orElse(true));
        return LauncherDiscoveryRequestBuilder.request()
            .selectors(Arrays.stream(classes).map(name -> selectClass(name)).toList())
            .filters(filter)
            .build();
    }

    private static Optional<String> nameOf(Optional<TestSource> source) {
        return source.filter(MethodSource.class::isInstance).map(MethodSource.class::cast)
            .map(at -> at.getClassName().substring(at.getClassName().lastIndexOf('.') + 1) + "." + at.getMethodName());
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        begun.put(test.getUniqueId(), System.nanoTime());
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        String ended = result.getStatus().name().toLowerCase();
        if (test.isTest() || result.getThrowable().isPresent()) tell(test, ended, result.getThrowable());
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        tell(test, "skipped", Optional.empty());
    }

    private static List<String> trace(Throwable error) {
        return Arrays.stream(error.getStackTrace()).limit(TRACE).map(Object::toString).toList();
    }

    private synchronized void tell(TestIdentifier test, String ended, Optional<Throwable> error) {
        long start = begun.getOrDefault(test.getUniqueId(), System.nanoTime());
        try {
            results.println(JSON.writeValueAsString(Map.of(
                "test", nameOf(test.getSource()).orElse(test.getDisplayName()),
                "run", test.getDisplayName(),
                "ended", ended,
                "error", error.map(Throwable::toString).orElse(""),
                "trace", error.map(RunTests::trace).orElse(List.of()),
                "seconds", (System.nanoTime() - start) / 1e9)));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
