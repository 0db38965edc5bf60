package io.tierberg.rsm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import io.tierberg.rsm.proto.DeleteSegmentRequest;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;

@Timeout(30)
class DeleteAndLifecycleTest {
    @TempDir
    Path folder;

    @Test
    void deleteCarriesTheSegmentAndReturns() throws Exception {
        try (FakeBridge bridge = new FakeBridge(); TierbergRemoteStorageManager manager = Shim.connect(bridge.port())) {
            AtomicReference<DeleteSegmentRequest> seen = new AtomicReference<>();
            var usual = bridge.delete;
            bridge.delete = (request, out) -> {
                seen.set(request);
                usual.accept(request, out);
            };
            manager.deleteLogSegmentData(Shim.segment(77));
            assertEquals("orders", seen.get().getSegment().getTopic());
            assertArrayEquals(new byte[] {9, 8, 7}, seen.get().getSegment().getCustomMetadata().toByteArray());
        }
    }

    @Test
    void deleteFailsFast() throws Exception {
        try (FakeBridge bridge = new FakeBridge();
             TierbergRemoteStorageManager hasty = Shim.connect(bridge.port(), "delete.timeout.ms", "3500");
             TierbergRemoteStorageManager manager = Shim.connect(bridge.port(), "delete.timeout.ms", "20000")) {
            bridge.delete = (request, out) -> { };
            long start = System.nanoTime();
            RemoteStorageException e = assertThrows(RemoteStorageException.class,
                () -> hasty.deleteLogSegmentData(Shim.segment(77)));
            long ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            assertTrue(ms >= 3_400 && ms < 15_000, ms + " ms, and the default is 2 s");
            assertTrue(e.getMessage().contains("delete of segment"), e.getMessage());
            assertTrue(e.getMessage().contains("DEADLINE_EXCEEDED"), e.getMessage());
            bridge.delete = (request, out) ->
                out.onError(FakeBridge.error(Status.FAILED_PRECONDITION.withDescription("not ours"), "foreign_segment"));
            e = assertThrows(RemoteStorageException.class, () -> manager.deleteLogSegmentData(Shim.segment(77)));
            assertSame(RemoteStorageException.class, e.getClass());
            assertTrue(e.getMessage().contains("FAILED_PRECONDITION (foreign_segment): not ours"), e.getMessage());
        }
    }

    @Test
    void anAbsentBridgeDoesNotKeepTheBrokerFromStarting() throws Exception {
        int port;
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = socket.getLocalPort();
        }
        try (TierbergRemoteStorageManager manager = assertDoesNotThrow(() -> Shim.connect(port))) {
            long start = System.nanoTime();
            assertThrows(RemoteStorageException.class, () -> manager.deleteLogSegmentData(Shim.segment(1)));
            assertThrows(RemoteStorageException.class, () -> manager.fetchLogSegment(Shim.segment(1), 0));
            assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(2));
        }
    }

    @Test
    void aHostNameThatDoesNotResolveFailsTheCallOnly() throws Exception {
        TierbergRemoteStorageManager manager = new TierbergRemoteStorageManager();
        manager.configure(java.util.Map.of("bridge.target", "no-such-host.invalid:1", "cluster.name", "x",
            "fetch.first.byte.timeout.ms", "4000"));
        try (manager) {
            RemoteStorageException e = assertThrows(RemoteStorageException.class,
                () -> manager.deleteLogSegmentData(Shim.segment(1)));
            assertTrue(e.getMessage().contains("delete of segment"), e.getMessage());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"one", "three", "dns"})
    void closeEndsCallsAndLeavesNoThread(String form) throws Exception {
        AtomicInteger sent = new AtomicInteger();
        try (Fakes fakes = new Fakes(3)) {
            String target = switch (form) {
                case "one" -> fakes.list.get(0).target();
                case "three" -> fakes.target();
                default -> "dns:///127.0.0.1:" + fakes.list.get(0).port();
            };
            try (TierbergRemoteStorageManager warmUp = Shim.connect(target)) {
                warmUp.deleteLogSegmentData(Shim.segment(1));
            }
            Set<Long> before = threads();
            TierbergRemoteStorageManager manager = Shim.connect(target);
            fakes.list.forEach(bridge -> bridge.fetch = (request, out) ->
                FakeBridge.stream(new byte[50_000_000], 200_000, out, sent));
            manager.copyLogSegmentData(Shim.segment(5), Shim.files(folder, new byte[5], true));
            List<InputStream> streams = new ArrayList<>();
            for (int i = 0; i < 12; i++) {
                manager.deleteLogSegmentData(Shim.segment(1, Uuid.randomUuid()));
                streams.add(manager.fetchLogSegment(Shim.segment(1, Uuid.randomUuid()), 0));
            }
            Set<String> ours = Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().startsWith("tierberg")).map(thread -> {
                    assertTrue(thread.isDaemon(), thread.getName());
                    return thread.getName();
                }).collect(Collectors.toCollection(TreeSet::new));
            // The bridges here stream without end, so the calls that warm up may not have ended yet.
            assertTrue(Set.of("tierberg-io", "tierberg-lookup", "tierberg-warm-up").containsAll(ours), ours.toString());
            assertEquals(1, Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().equals("tierberg-io")).count());
            long start = System.nanoTime();
            manager.close();
            long ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            System.out.println("close took " + ms + " ms");
            Set<String> left = Thread.getAllStackTraces().keySet().stream()
                .filter(t -> !before.contains(t.getId()) && !t.getName().contains("worker-ELG")
                    && !t.getName().startsWith("grpc-default-executor"))
                .map(Thread::getName).collect(Collectors.toCollection(TreeSet::new));
            assertEquals(Set.of(), left);
            for (InputStream in : streams) {
                assertThrows(java.io.IOException.class, in::readAllBytes);
            }
            assertThrows(RemoteStorageException.class, () -> manager.deleteLogSegmentData(Shim.segment(1)));
        }
    }

    @Test
    void closeBeforeConfigureIsFine() {
        assertDoesNotThrow(() -> new TierbergRemoteStorageManager().close());
    }

    private static Set<Long> threads() {
        return Thread.getAllStackTraces().keySet().stream().map(Thread::getId).collect(Collectors.toSet());
    }
}
