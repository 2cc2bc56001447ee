package org.apache.kafka.common.test.junit;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.Socket;
import java.util.HashMap;
import java.util.Map;

/** Asks the process that runs the tests, at a port of the loopback address, to start and stop brokers. */
final class Starter {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Starter() {
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> ask(String what, Map<String, ?> with) {
        Map<String, Object> question = new HashMap<>(with);
        question.put("do", what);
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), Integer.getInteger("headwater.starter"))) {
            socket.getOutputStream().write(JSON.writeValueAsBytes(question));
            socket.shutdownOutput();
            Map<String, Object> answer = JSON.readValue(socket.getInputStream().readAllBytes(), Map.class);
            if (answer.containsKey("error")) throw new IllegalStateException((String) answer.get("error"));
            return answer;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
