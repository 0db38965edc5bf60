package io.tierberg.rsm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.ProcessBuilder.Redirect;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/** The throw-away calls after configure(): what they spare the first fetch, and that nobody else notices them. */
@Timeout(120)
class WarmUpTest {
    private static final String THREAD = "tierberg-warm-up";

    private static boolean running() {
        return Thread.getAllStackTraces().keySet().stream().anyMatch(thread -> thread.getName().equals(THREAD));
    }

    private static void await(BooleanSupplier condition, String what) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, what);
            Thread.sleep(20);
        }
    }

    /** A broker of its own: milliseconds and CPU milliseconds of its first index and segment. */
    private static long[] firstFetch(Fakes bridges, boolean warm) throws Exception {
        int before = bridges.list.get(0).warmUps.get();
        Process probe = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-cp",
            System.getProperty("java.class.path"), FirstFetchProbe.class.getName(), bridges.target(),
            Boolean.toString(warm)).redirectError(Redirect.INHERIT).start();
        try (BufferedReader out = new BufferedReader(new InputStreamReader(probe.getInputStream()))) {
            List<String> lines = out.lines().toList();
            assertTrue(probe.waitFor(60, TimeUnit.SECONDS));
            assertEquals(0, probe.exitValue(), lines.toString());
            assertEquals(warm, bridges.list.get(0).warmUps.get() > before, "the probe did not what it should");
            String[] figures = lines.get(lines.size() - 1).split(" ");
            return new long[] {Long.parseLong(figures[0]), Long.parseLong(figures[1])};
        } finally {
            probe.destroyForcibly();
        }
    }

    @Test
    void theFirstFetchCostsLessThanHalf() throws Exception {
        try (Fakes bridges = new Fakes(1)) {
            bridges.serve(0, new byte[3_000_000]);
            long cold = Long.MAX_VALUE;
            long warm = Long.MAX_VALUE;
            for (int i = 0; i < 3; i++) {
                long[] without = firstFetch(bridges, false);
                long[] with = firstFetch(bridges, true);
                System.out.printf("first fetch without warm-up: %d ms, %d ms CPU; with: %d ms, %d ms CPU%n",
                    without[0], without[1], with[0], with[1]);
                cold = Math.min(cold, without[1]);
                warm = Math.min(warm, with[1]);
            }
            assertTrue(2 * warm < cold, warm + " ms CPU with, " + cold + " without");
        }
    }

    @Test
    void everyBridgeIsWarmedUpOnceAndNoneIsAskedForAnything() throws Exception {
        try (Fakes bridges = new Fakes(3)) {
            String log = Logged.during(() -> {
                try (TierbergRemoteStorageManager manager = Shim.connect(bridges.target())) {
                    await(() -> !running(), "it does not end");
                    Thread.sleep(1_000);
                }
            });
            bridges.list.forEach(bridge -> assertEquals(6, bridge.warmUps.get()));
            for (int i = 0; i < 3; i++) {
                assertEquals(0, bridges.fetches(i) + bridges.deletes(i));
            }
            assertEquals(1, log.lines().count(), log);
        }
    }

    @Test
    void aBridgeThatComesLaterIsWarmedUpThenAndNothingIsSaidBefore() throws Exception {
        Fakes bridges = new Fakes(2);
        int port = bridges.list.get(1).port();
        bridges.list.get(1).close();
        String log = Logged.during(() -> {
            long start = System.nanoTime();
            try (TierbergRemoteStorageManager manager = Shim.connect(bridges.target())) {
                assertTrue(TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start) < 1_000, "configure() was held up");
                await(() -> bridges.list.get(0).warmUps.get() == 6, "the one that is there");
                Thread.sleep(2_000);
                assertTrue(running());
                bridges.list.set(1, new FakeBridge(port, null));
                await(() -> bridges.list.get(1).warmUps.get() == 6, "the one that came");
                await(() -> !running(), "it does not end");
                assertEquals(6, bridges.list.get(0).warmUps.get());
            } finally {
                bridges.close();
            }
        });
        assertEquals(1, log.lines().count(), log);
    }

    /** One that refuses, one that is silent, one that takes connections and does not speak. */
    @Test
    void failuresAreSilentAndCostRealCallsNothing() throws Exception {
        try (Fakes bridges = new Fakes(2);
                ServerSocket frozen = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            bridges.list.get(0).warm = (request, out) -> out.onError(Status.UNIMPLEMENTED.asRuntimeException());
            bridges.list.get(1).warm = (request, out) -> { };
            String log = Logged.during(() -> {
                try (TierbergRemoteStorageManager manager =
                         Shim.connect(bridges.target() + ",127.0.0.1:" + frozen.getLocalPort())) {
                    await(() -> bridges.list.get(0).warmUps.get() + bridges.list.get(1).warmUps.get() >= 2, "both");
                    for (int i = 0; i < 2; i++) {
                        Uuid segment = bridges.segmentOf(i);
                        while (Bridges.ranked(segment, List.of(Fakes.named(bridges.list.get(i).target()),
                                Fakes.named("127.0.0.1:" + frozen.getLocalPort()))).get(0).name().endsWith(":"
                                + frozen.getLocalPort())) {
                            segment = bridges.segmentOf(i);
                        }
                        long start = System.nanoTime();
                        manager.fetchIndex(Shim.segment(1, segment), IndexType.OFFSET).close();
                        long ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
                        assertTrue(ms < 1_500, ms + " ms");
                    }
                }
            });
            assertEquals(1, log.lines().count(), log);
        }
    }

    @Test
    void closeEndsItAtOnce() throws Exception {
        try (ServerSocket frozen = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            for (int wait : new int[] {0, 1, 5, 20, 300, 1_500}) {
                TierbergRemoteStorageManager manager = Shim.connect(frozen.getLocalPort());
                Thread.sleep(wait);
                long start = System.nanoTime();
                manager.close();
                long ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
                assertTrue(ms < 1_000, ms + " ms");
                assertFalse(running());
            }
        }
    }
}
