package io.tierberg.rsm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.grpc.Status;
import io.tierberg.rsm.proto.FetchChunk;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/** Fetches and deletes over three bridges: who is asked, and who is asked next when one fails. */
@Timeout(60)
class FailoverTest {
    private static final String[] SETTINGS = {"fetch.first.byte.timeout.ms", "3000", "fetch.frame.timeout.ms", "1000",
        "delete.timeout.ms", "3000", "bridge.failover.percent", "20", "connect.timeout.ms", "1000"};
    private static final long SHARE_MS = 600;
    private Fakes fakes;
    private TierbergRemoteStorageManager manager;

    @BeforeEach
    void start() throws IOException {
        fakes = new Fakes(3);
        manager = Shim.connect(fakes.target(), SETTINGS);
    }

    @AfterEach
    void stop() {
        manager.close();
        fakes.close();
    }

    private byte[] fetch(Uuid segment) throws Exception {
        try (InputStream in = manager.fetchLogSegment(Shim.segment(1, segment), 0)) {
            return in.readAllBytes();
        }
    }

    private void delete(Uuid segment) throws RemoteStorageException {
        manager.deleteLogSegmentData(Shim.segment(1, segment));
    }

    private interface Body {
        void run() throws Exception;
    }

    private static long millis(Body body) throws Exception {
        long start = System.nanoTime();
        body.run();
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
    }

    private static void assertContains(String part, String text) {
        assertTrue(text.contains(part), text);
    }

    /** Both fetches and indexes, again and again, and in the end the delete: one bridge, whatever the list's order. */
    @Test
    void allCallsForASegmentGoToOneBridge() throws Exception {
        String[] reversed = fakes.target().split(",");
        String turned = reversed[2] + ", " + reversed[0] + "," + reversed[1];
        try (TierbergRemoteStorageManager other = Shim.connect(turned, SETTINGS)) {
            for (int i = 0; i < 90; i++) {
                Uuid segment = Uuid.randomUuid();
                int owner = fakes.order(segment).get(0);
                int before = fakes.fetches(owner);
                for (TierbergRemoteStorageManager each : List.of(manager, other)) {
                    each.fetchLogSegment(Shim.segment(1, segment), 0).close();
                    each.fetchLogSegment(Shim.segment(1, segment), 10, 20).close();
                    each.fetchIndex(Shim.segment(1, segment), IndexType.OFFSET).close();
                    each.fetchIndex(Shim.segment(1, segment), IndexType.TRANSACTION).close();
                }
                delete(segment);
                assertEquals(before + 8, fakes.fetches(owner));
                assertTrue(fakes.deleted.get(owner).contains(segment));
            }
        }
        for (int number = 0; number < 3; number++) {
            assertTrue(fakes.deletes(number) >= 10, "spread: " + fakes.deletes(number) + " of 90");
        }
    }

    @Test
    void aBridgeThatRefusesConnectionsIsLeftAtOnceAndSkipped() throws Exception {
        Uuid segment = fakes.segmentOf(0);
        int next = fakes.order(segment).get(1);
        fakes.list.get(0).close();
        assertTrue(millis(() -> assertEquals(1000, fetch(segment).length)) < 2 * SHARE_MS);
        assertEquals(1, fakes.fetches(next));
        // The retry goes where the first one's result is.
        for (int i = 0; i < 20; i++) {
            fetch(segment);
        }
        assertEquals(21, fakes.fetches(next));
        Uuid another = fakes.segmentOf(0);
        delete(another);
        assertTrue(fakes.deleted.get(fakes.order(another).get(1)).contains(another));
    }

    @Test
    void aBridgeThatComesBackGetsItsSegmentsBack() throws Exception {
        Uuid segment = fakes.segmentOf(0);
        int port = fakes.list.get(0).port();
        fetch(segment);
        fakes.list.get(0).close();
        fetch(segment);
        fakes.list.set(0, new FakeBridge(port, null));
        fakes.serve(0, new byte[2000]);
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        while (fetch(segment).length != 2000) {
            assertTrue(System.nanoTime() < end, "it is not asked again");
            Thread.sleep(20);
        }
        for (int i = 0; i < 10; i++) {
            assertEquals(2000, fetch(segment).length);
        }
    }

    @Test
    void aSilentBridgeIsLeftAfterItsShareAndThenSkipped() throws Exception {
        Uuid segment = fakes.segmentOf(1);
        fakes.list.get(1).fetch = (request, out) -> { };
        fakes.list.get(1).delete = (request, out) -> { };
        long first = millis(() -> assertEquals(1000, fetch(segment).length));
        assertTrue(first >= SHARE_MS - 20 && first < 3 * SHARE_MS, first + " ms");
        long second = millis(() -> assertEquals(1000, fetch(segment).length));
        assertTrue(second < SHARE_MS, second + " ms");
        assertTrue(millis(() -> delete(fakes.segmentOf(1))) < SHARE_MS);
        assertTrue(fakes.list.get(1).cancelled.await(5, TimeUnit.SECONDS));
    }

    /** The default's share would be over after 1.2 s, as would be that of the default deadline. */
    @Test
    void theShareIsTheOneThatWasSet() throws Exception {
        manager.close();
        manager = Shim.connect(fakes.target(), "delete.timeout.ms", "3000", "bridge.failover.percent", "80");
        Uuid segment = fakes.segmentOf(1);
        fakes.list.get(1).delete = (request, out) -> { };
        long first = millis(() -> delete(segment));
        assertTrue(first >= 2_380, first + " ms");
    }

    @Test
    void aSilentDeleteIsTakenToTheNextBridge() throws Exception {
        Uuid segment = fakes.segmentOf(1);
        fakes.list.get(1).delete = (request, out) -> { };
        long first = millis(() -> delete(segment));
        assertTrue(first >= SHARE_MS - 20 && first < 3 * SHARE_MS, first + " ms");
        assertEquals(1, fakes.deletes(fakes.order(segment).get(1)));
    }

    /** A stopped process: the kernel takes connections, nobody speaks. It must not count as back for that. */
    @Test
    void aFrozenBridgeStaysSkipped() throws Exception {
        Fakes two = new Fakes(2);
        try (ServerSocket frozen = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            String name = "127.0.0.1:" + frozen.getLocalPort();
            List<Bridge> bridges = List.of(Fakes.named(name), Fakes.named(two.list.get(0).target()),
                Fakes.named(two.list.get(1).target()));
            Uuid drawn = Uuid.randomUuid();
            while (!Bridges.ranked(drawn, bridges).get(0).name().equals(name)) {
                drawn = Uuid.randomUuid();
            }
            Uuid segment = drawn;
            try (TierbergRemoteStorageManager own = Shim.connect(name + "," + two.target(), SETTINGS)) {
                own.fetchLogSegment(Shim.segment(1, segment), 0).close();
                long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(4);
                while (System.nanoTime() < end) {
                    long ms = millis(() -> own.fetchLogSegment(Shim.segment(1, segment), 0).close());
                    assertTrue(ms < SHARE_MS - 100, ms + " ms");
                    Thread.sleep(50);
                }
            }
        } finally {
            two.close();
        }
    }

    @Test
    void aStreamThatHasGivenBytesFailsAndTheRetryGetsTheNextBridge() throws Exception {
        byte[] bytes = Shim.random(30_000_000, 5);
        IntStream.range(0, 3).forEach(number -> fakes.serve(number, bytes));
        Uuid segment = fakes.segmentOf(2);
        InputStream in = manager.fetchLogSegment(Shim.segment(1, segment), 0);
        assertEquals(bytes[0] & 0xff, in.read());
        fakes.list.get(2).close();
        IOException e = assertThrows(IOException.class, in::readAllBytes);
        assertContains("failed while reading: ", e.getMessage());
        assertContains("[bridge " + fakes.list.get(2).target() + "]", e.getMessage());
        assertTrue(millis(() -> assertArrayEquals(bytes, fetch(segment))) < 5_000);
        assertEquals(1, fakes.fetches(fakes.order(segment).get(1)));
    }

    @Test
    void silenceInMidStreamFailsItAndTheRetryGetsTheNextBridge() throws Exception {
        Uuid segment = fakes.segmentOf(2);
        fakes.list.get(2).fetch = (request, out) ->
            out.onNext(FetchChunk.newBuilder().setData(ByteString.copyFrom(new byte[10])).build());
        try (InputStream in = manager.fetchLogSegment(Shim.segment(1, segment), 0)) {
            assertEquals(10, in.readNBytes(10).length);
            assertContains("nothing from the bridge for 1000 ms", assertThrows(IOException.class, in::read).getMessage());
        }
        assertEquals(1000, fetch(segment).length);
    }

    @Test
    void anAnswerIsAnAnswer() {
        Uuid segment = fakes.segmentOf(0);
        FakeBridge first = fakes.list.get(0);
        first.fetch = (request, out) -> out.onError(FakeBridge.error(Status.NOT_FOUND.withDescription("x"), "not_found"));
        assertThrows(RemoteResourceNotFoundException.class, () -> fetch(segment));
        first.fetch = (request, out) ->
            out.onError(FakeBridge.error(Status.DATA_LOSS.withDescription("x"), "corrupt_object"));
        assertSame(RemoteStorageException.class, assertThrows(RemoteStorageException.class,
            () -> fetch(segment)).getClass());
        assertEquals(0, fakes.fetches(1) + fakes.fetches(2));
    }

    @Test
    void aBridgeThatStopsAndCancelsIsLeftForTheNext() throws Exception {
        Uuid segment = fakes.segmentOf(0);
        fakes.list.get(0).fetch = (request, out) -> out.onError(Status.CANCELLED.asRuntimeException());
        assertEquals(1000, fetch(segment).length);
    }

    /** Its store is away, it is not: others may do better, but it keeps its segments. */
    @Test
    void aBridgeThatSaysUnavailableIsPassedOverForThatCallOnly() throws Exception {
        Uuid segment = fakes.segmentOf(0);
        fakes.list.get(0).fetch = (request, out) ->
            out.onError(FakeBridge.error(Status.UNAVAILABLE.withDescription("503"), "store_unavailable"));
        assertEquals(1000, fetch(segment).length);
        assertEquals(1, fakes.fetches(fakes.order(segment).get(1)));
        fakes.serve(0, new byte[2000]);
        assertEquals(2000, fetch(segment).length);
    }

    @Test
    void whenAllFailTheMessageNamesEachWithinTheDeadline() throws Exception {
        Uuid segment = fakes.segmentOf(0, 1, 2);
        fakes.list.get(0).fetch = (request, out) -> { };
        fakes.list.get(1).close();
        fakes.list.get(2).fetch = (request, out) -> { };
        long ms = millis(() -> {
            RemoteStorageException e = assertThrows(RemoteStorageException.class, () -> fetch(segment));
            assertSame(RemoteStorageException.class, e.getClass());
            for (FakeBridge fake : fakes.list) {
                assertContains(fake.target(), e.getMessage());
            }
            assertContains("nothing from the bridge for " + SHARE_MS + " ms", e.getMessage());
        });
        assertTrue(ms >= 2_500 && ms < 4_000, ms + " ms");
    }

    @Test
    void withAllBridgesAwayCallsFailFast() throws Exception {
        fakes.close();
        for (int i = 0; i < 4; i++) {
            Uuid segment = Uuid.randomUuid();
            assertTrue(millis(() -> assertThrows(RemoteStorageException.class, () -> fetch(segment))) < 2_500);
            assertTrue(millis(() -> assertThrows(RemoteStorageException.class, () -> delete(segment))) < 2_500);
        }
        fakes.list.set(1, new FakeBridge(fakes.list.get(1).port(), null));
        fakes.serve(1, new byte[77]);
        assertEquals(77, fetch(fakes.segmentOf(0)).length);
    }

    @Test
    void anInterruptEndsTheFetchWithoutAskingOthers() throws Exception {
        Uuid segment = fakes.segmentOf(0);
        fakes.list.get(0).fetch = (request, out) -> { };
        Thread reader = Thread.currentThread();
        Thread other = new Thread(() -> {
            try {
                Thread.sleep(200);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            reader.interrupt();
        });
        other.start();
        assertTrue(assertThrows(RemoteStorageException.class, () -> fetch(segment)).getMessage()
            .endsWith(": interrupted"));
        assertTrue(Thread.interrupted());
        other.join();
        assertEquals(0, fakes.fetches(1) + fakes.fetches(2));
    }
}
