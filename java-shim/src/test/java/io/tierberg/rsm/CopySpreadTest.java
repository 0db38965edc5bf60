package io.tierberg.rsm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.stub.ServerCallStreamObserver;
import io.tierberg.rsm.proto.CopyResponse;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Copies over three bridges. */
@Timeout(60)
class CopySpreadTest {
    @TempDir
    Path folder;
    /** The number of the bridge of each copy, as they began. */
    private final List<Integer> begun = new CopyOnWriteArrayList<>();
    private final CountDownLatch goOn = new CountDownLatch(1);
    private Fakes fakes;
    private TierbergRemoteStorageManager manager;

    @BeforeEach
    void start() throws IOException {
        fakes = new Fakes(3);
        for (int number = 0; number < 3; number++) {
            int own = number;
            fakes.list.get(number).copy = out -> {
                begun.add(own);
                return new FakeBridge.Recorder(out);
            };
        }
        manager = Shim.connect(fakes.target(), "connect.timeout.ms", "1000", "copy.stall.timeout.ms", "5000");
    }

    @AfterEach
    void stop() {
        goOn.countDown();
        manager.close();
        fakes.close();
    }

    private byte[] copy(Uuid segment, LogSegmentData data) throws RemoteStorageException {
        return manager.copyLogSegmentData(Shim.segment(1, segment), data).orElseThrow().value();
    }

    private void awaitBegun(int count) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        while (begun.size() < count) {
            assertTrue(System.nanoTime() < end, begun.size() + " copies have begun");
            Thread.sleep(5);
        }
    }

    /** Stops a bridge, and gives the end of its connections the time to arrive. */
    private void away(int number) throws InterruptedException {
        fakes.list.get(number).close();
        Thread.sleep(300);
    }

    @Test
    void aCopyThatIsInterruptedWhileItConnectsIsNotCountedOn() throws Exception {
        try (ServerSocket silent = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            Bridges bridges = new Bridges(ShimConfig.parse(Map.of("bridge.target", "127.0.0.1:" + silent.getLocalPort()
                + "," + fakes.list.get(0).target(), "cluster.name", "test")), InetAddress::getAllByName);
            try {
                Bridge mute = bridges.known().stream()
                    .filter(bridge -> bridge.name().endsWith(":" + silent.getLocalPort())).findFirst().orElseThrow();
                Thread.currentThread().interrupt();
                assertThrows(InterruptedException.class, () -> mute.takesCopy(false));
                assertEquals(0, mute.copies());
            } finally {
                bridges.close();
            }
        }
    }

    @Test
    void aCopyGoesToTheBridgeWithTheFewest() throws Exception {
        for (int number = 0; number < 3; number++) {
            int own = number;
            fakes.list.get(number).copy = out -> {
                begun.add(own);
                return new Held(out);
            };
        }
        LogSegmentData data = Shim.files(folder, Shim.random(1000, 1), true);
        ExecutorService threads = Executors.newFixedThreadPool(9);
        try {
            List<Future<byte[]>> running = new ArrayList<>();
            for (int i = 0; i < 9; i++) {
                Uuid segment = fakes.segmentOf(0);
                running.add(threads.submit(() -> copy(segment, data)));
                awaitBegun(i + 1);
            }
            for (int number = 0; number < 3; number++) {
                int own = number;
                assertEquals(3, begun.stream().filter(seen -> seen == own).count(), begun.toString());
            }
            assertEquals(0, begun.get(0), "with nothing else to do, the one that will serve it");
            goOn.countDown();
            for (Future<byte[]> copy : running) {
                assertEquals(40, copy.get(10, TimeUnit.SECONDS).length);
            }
            copy(fakes.segmentOf(2), data);
            assertEquals(2, begun.get(9), "what has ended does not count");
        } finally {
            threads.shutdownNow();
        }
    }

    @Test
    void aBridgeThatIsAwayCostsACopyNothing() throws Exception {
        away(0);
        byte[] log = Shim.random(3_000_000, 2);
        LogSegmentData data = Shim.files(folder, log, true);
        for (int i = 0; i < 5; i++) {
            assertEquals(40, copy(fakes.segmentOf(0, 1, 2), data).length);
        }
        assertEquals(List.of(1, 1, 1, 1, 1), begun);
        assertArrayEquals(log, fakes.list.get(1).recorded.log.toByteArray());
        away(1);
        assertEquals(40, copy(fakes.segmentOf(0, 1, 2), data).length);
        assertEquals(2, begun.get(5));
        away(2);
        RemoteStorageException e = assertThrows(RemoteStorageException.class,
            () -> copy(fakes.segmentOf(0, 1, 2), data));
        assertTrue(e.getMessage().contains("UNAVAILABLE"), e.getMessage());
        assertTrue(e.getMessage().contains("[bridge 127.0.0.1:"), e.getMessage());
    }

    @Test
    void aCopyNeverChangesBridges() throws Exception {
        fakes.list.get(0).copy = out -> {
            begun.add(0);
            return new FakeBridge.Recorder(out) {
                @Override
                void onFrame() {
                    new Thread(fakes.list.get(0)::close).start();
                }

                @Override
                void onEnd() { }
            };
        };
        LogSegmentData data = Shim.files(folder, Shim.random(9_000_000, 3), true);
        RemoteStorageException e = assertThrows(RemoteStorageException.class, () -> copy(fakes.segmentOf(0), data));
        assertSame(RemoteStorageException.class, e.getClass());
        assertEquals(List.of(0), begun);
        // Kafka withdraws it and comes with a new id.
        manager.deleteLogSegmentData(Shim.segment(1, fakes.segmentOf(0)));
        assertEquals(40, copy(fakes.segmentOf(0), data).length);
        assertEquals(2, begun.size());
    }

    /** Answers when the test says so. */
    private final class Held extends FakeBridge.Recorder {
        Held(ServerCallStreamObserver<CopyResponse> out) {
            super(out);
        }

        @Override
        void onEnd() {
            new Thread(() -> {
                try {
                    if (goOn.await(20, TimeUnit.SECONDS)) {
                        Held.super.onEnd();
                    }
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }).start();
        }
    }
}
