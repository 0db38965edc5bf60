package io.tierberg.rsm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.stub.ServerCallStreamObserver;
import io.tierberg.rsm.proto.CopyRequest;
import io.tierberg.rsm.proto.CopyResponse;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.ProcessBuilder.Redirect;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** What ten copies and ten fetches cost the broker, in a JVM of their own with capped direct memory. */
@Timeout(300)
class MemoryTest {
    private static final long LIMIT_BYTES = 20L << 20;

    @TempDir
    Path folder;

    @ParameterizedTest
    @ValueSource(ints = {1, 3})
    void tenCopiesStayUnder20MiB(int count) throws Exception {
        ScheduledExecutorService clock = Executors.newScheduledThreadPool(2);
        try (Fakes bridges = new Fakes(count)) {
            bridges.list.forEach(bridge -> bridge.copy = out -> new SlowSink(out, clock));
            check(bridges, "copy");
        } finally {
            clock.shutdownNow();
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 3})
    void tenFetchesStayUnder20MiB(int count) throws Exception {
        byte[] bytes = Shim.random(32_000_000, 41);
        try (Fakes bridges = new Fakes(count)) {
            bridges.list.forEach(bridge -> bridge.fetch = (request, out) ->
                FakeBridge.stream(bytes, 256 * 1024, out, new AtomicInteger()));
            check(bridges, "fetch");
        }
    }

    /** Over all of them together. */
    private void check(Fakes bridges, String what) throws IOException, InterruptedException {
        Process probe = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
            "-Xmx64m", "-XX:MaxDirectMemorySize=20m", "-cp", System.getProperty("java.class.path"),
            MemoryProbe.class.getName(), what, bridges.target(), folder.toString())
            .redirectError(Redirect.INHERIT).start();
        try (BufferedReader out = new BufferedReader(new InputStreamReader(probe.getInputStream()))) {
            List<String> lines = out.lines().toList();
            assertTrue(probe.waitFor(180, TimeUnit.SECONDS));
            assertEquals(0, probe.exitValue(), lines.toString());
            String[] figures = lines.get(lines.size() - 1).split(" ");
            long heap = Long.parseLong(figures[0]);
            long direct = Long.parseLong(figures[1]);
            System.out.printf("10 x %s over %d bridges: %.1f MiB heap, %.1f MiB direct%n", what, bridges.list.size(),
                heap / 1048576.0, direct / 1048576.0);
            assertTrue(heap + direct <= LIMIT_BYTES, what + ": " + heap + " heap, " + direct + " direct");
            assertTrue(direct > 0, "the probe saw no direct memory, so it measured nothing");
        } finally {
            probe.destroyForcibly();
        }
    }

    /** Takes one message every 20 ms, so that every copy always has a frame waiting. */
    private static final class SlowSink extends FakeBridge.Recorder {
        private final ScheduledExecutorService clock;

        SlowSink(ServerCallStreamObserver<CopyResponse> out, ScheduledExecutorService clock) {
            super(out);
            this.clock = clock;
            out.disableAutoRequest();
            out.request(1);
        }

        @Override
        public void onNext(CopyRequest message) {
            if (message.hasEnd()) {
                out.onNext(FakeBridge.result(40));
                out.onCompleted();
            } else {
                clock.schedule(() -> out.request(1), 20, TimeUnit.MILLISECONDS);
            }
        }
    }
}
