package io.tierberg.rsm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.grpc.Status;
import io.tierberg.rsm.proto.FetchChunk;
import io.tierberg.rsm.proto.FetchSegmentRequest;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

@Timeout(30)
class FetchTest {
    private final AtomicInteger sent = new AtomicInteger();
    private final AtomicReference<FetchSegmentRequest> asked = new AtomicReference<>();
    private FakeBridge bridge;
    private TierbergRemoteStorageManager manager;

    @BeforeEach
    void start() throws IOException {
        bridge = new FakeBridge();
        manager = Shim.connect(bridge.port());
    }

    /** From now on; a loaded machine takes longer than this for a fetch that succeeds. */
    private void waitShortly() {
        manager.close();
        manager = Shim.connect(bridge.port(), "fetch.first.byte.timeout.ms", "600", "fetch.frame.timeout.ms", "400");
    }

    @AfterEach
    void stop() {
        manager.close();
        bridge.close();
    }

    private void serve(byte[] bytes, int frame) {
        bridge.fetch = (request, out) -> {
            asked.set(request);
            FakeBridge.stream(bytes, frame, out, sent);
        };
    }

    private InputStream fetch() throws RemoteStorageException {
        return manager.fetchLogSegment(Shim.segment(1), 0);
    }

    private static FetchChunk chunk(int size) {
        return FetchChunk.newBuilder().setData(ByteString.copyFrom(new byte[size])).build();
    }

    @ParameterizedTest
    @ValueSource(ints = {1_000, 127, 128, 200_000, 262_144, 1_000_000})
    void everyByteComesBack(int frame) throws Exception {
        byte[] bytes = Shim.random(frame < 1000 ? 100_000 : 7_000_003, 21);
        serve(bytes, frame);
        try (InputStream in = manager.fetchLogSegment(Shim.segment(1), 4711)) {
            assertArrayEquals(bytes, in.readAllBytes());
            assertEquals(-1, in.read());
            assertEquals(-1, in.read(new byte[10]));
        }
        assertEquals(4711, asked.get().getStartPosition());
        assertFalse(asked.get().hasEndPosition());
        assertEquals("1", bridge.seenProtocol);
    }

    @Test
    void byteReadsSkipsAndAvailableAgree() throws Exception {
        byte[] bytes = Shim.random(5_000, 22);
        serve(bytes, 700);
        try (InputStream in = fetch()) {
            assertEquals(700, in.available());
            assertEquals(bytes[0] & 0xff, in.read());
            assertEquals(699, in.available());
            assertEquals(0, in.read(new byte[5], 2, 0));
            in.skipNBytes(1_999);
            byte[] piece = new byte[10];
            assertEquals(8, in.read(piece, 1, 8));
            assertArrayEquals(Arrays.copyOfRange(bytes, 2_000, 2_008), Arrays.copyOfRange(piece, 1, 9));
            assertEquals(0, piece[0]);
            assertEquals(0, piece[9]);
        }
    }

    @Test
    void theEndIsInclusiveAndPassedOn() throws Exception {
        serve(new byte[10], 10);
        manager.fetchLogSegment(Shim.segment(1), 5, 5).close();
        assertTrue(asked.get().hasEndPosition());
        assertEquals(5, asked.get().getEndPosition());
        manager.fetchLogSegment(Shim.segment(1), 0, 0).close();
        assertTrue(asked.get().hasEndPosition());
        assertContains("position 4 is below 5", assertThrows(RemoteStorageException.class,
            () -> manager.fetchLogSegment(Shim.segment(1), 5, 4)).getMessage());
        assertContains("position -1 is below 0", assertThrows(RemoteStorageException.class,
            () -> manager.fetchLogSegment(Shim.segment(1), -1)).getMessage());
    }

    @Test
    void noBytesAndEmptyFramesAreFine() throws Exception {
        bridge.fetch = (request, out) -> out.onCompleted();
        try (InputStream in = fetch()) {
            assertEquals(-1, in.read());
        }
        bridge.fetch = (request, out) -> {
            out.onNext(chunk(0));
            out.onNext(chunk(3));
            out.onNext(chunk(0));
            out.onCompleted();
        };
        try (InputStream in = fetch()) {
            assertEquals(3, in.readAllBytes().length);
        }
    }

    @ParameterizedTest
    @EnumSource(IndexType.class)
    void everyIndexType(IndexType type) throws Exception {
        byte[] bytes = Shim.random(400_000, type.ordinal());
        AtomicReference<String> seen = new AtomicReference<>();
        bridge.index = (request, out) -> {
            seen.set(request.getType().name());
            FakeBridge.stream(bytes, 150_000, out, sent);
        };
        try (InputStream in = manager.fetchIndex(Shim.segment(1), type)) {
            assertArrayEquals(bytes, in.readAllBytes());
        }
        assertEquals(type.name(), seen.get());
    }

    @Test
    void notFoundSurfacesFromTheMethod() {
        bridge.index = (request, out) ->
            out.onError(FakeBridge.error(Status.NOT_FOUND.withDescription("no aborted transactions"), "no_index"));
        RemoteResourceNotFoundException e = assertThrows(RemoteResourceNotFoundException.class,
            () -> manager.fetchIndex(Shim.segment(1), IndexType.TRANSACTION));
        assertContains("fetch of the TRANSACTION index of segment", e.getMessage());
        assertContains("NOT_FOUND (no_index): no aborted transactions", e.getMessage());
        bridge.fetch = (request, out) ->
            out.onError(FakeBridge.error(Status.NOT_FOUND.withDescription("deleted"), "segment_deleted"));
        assertThrows(RemoteResourceNotFoundException.class, this::fetch);
    }

    /** Kafka takes a RemoteResourceNotFoundException for "no aborted transactions", and would serve what was aborted. */
    @ParameterizedTest
    @ValueSource(strings = {"segment_deleted", "not_found", ""})
    void aTransactionIndexThatIsLostIsNotOneThatNeverWas(String kind) {
        bridge.index = (request, out) -> {
            Status status = Status.NOT_FOUND.withDescription("gone");
            out.onError(kind.isEmpty() ? status.asRuntimeException() : FakeBridge.error(status, kind));
        };
        RemoteStorageException e = assertThrows(RemoteStorageException.class,
            () -> manager.fetchIndex(Shim.segment(1), IndexType.TRANSACTION));
        assertSame(RemoteStorageException.class, e.getClass());
    }

    /** gRPC keeps what had come for them when the connection is lost, and frees it for no cancel. */
    @Test
    void unreadStreamsOfALostConnectionGiveTheirBuffersBack() throws Exception {
        serve(new byte[5_000_000], 200_000);
        List<InputStream> open = new ArrayList<>();
        for (int i = 0; i < 100; i++) {
            open.add(fetch());
        }
        assertTrue(manager.directBytes() > 20L << 20, manager.directBytes() + " bytes");
        bridge.close();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(15);
        // Said of a new connection: the one of the streams is gone.
        while (!assertThrows(RemoteStorageException.class, this::fetch).getMessage().contains("Connection refused")) {
            assertTrue(System.nanoTime() < end);
        }
        for (InputStream in : open) {
            in.close();
        }
        while (manager.directBytes() > 8L << 20 && System.nanoTime() < end) {
            Thread.sleep(20);
        }
        assertTrue(manager.directBytes() <= 8L << 20, manager.directBytes() + " bytes");
    }

    @Test
    void aFailureOfTheJvmIsNamed() {
        Throwable cause = new OutOfMemoryError("Cannot reserve 2097152 bytes of direct buffer memory");
        assertEquals("UNKNOWN: java.lang.OutOfMemoryError: Cannot reserve 2097152 bytes of direct buffer memory",
            BridgeCall.failure(Status.UNKNOWN.withCause(cause), null).getMessage());
        assertEquals("INTERNAL: reading: java.lang.IllegalStateException: b", BridgeCall.failure(Status.INTERNAL
            .withDescription("reading").withCause(new RuntimeException("a", new IllegalStateException("b"))), null)
            .getMessage());
    }

    @Test
    void badArgumentsLeaveTheStreamAsItIs() throws Exception {
        byte[] bytes = Shim.random(1000, 5);
        serve(bytes, 100);
        try (InputStream in = fetch()) {
            assertThrows(IndexOutOfBoundsException.class, () -> in.read(new byte[3], 2, 5));
            assertThrows(IndexOutOfBoundsException.class, () -> in.read(new byte[3], -1, 1));
            assertThrows(NullPointerException.class, () -> in.read(null, 0, 1));
            assertArrayEquals(bytes, in.readAllBytes());
        }
    }

    @Test
    void otherErrorsAreRemoteStorageExceptions() {
        for (Status status : new Status[] {Status.DATA_LOSS, Status.FAILED_PRECONDITION, Status.INTERNAL,
            Status.RESOURCE_EXHAUSTED, Status.UNAVAILABLE, Status.UNKNOWN}) {
            bridge.fetch = (request, out) -> out.onError(FakeBridge.error(status.withDescription("why"), "kind"));
            RemoteStorageException e = assertThrows(RemoteStorageException.class, this::fetch);
            assertSame(RemoteStorageException.class, e.getClass());
            assertContains("fetch from 0 of segment ", e.getMessage());
            assertContains(status.getCode() + " (kind): why", e.getMessage());
        }
    }

    @Test
    void anErrorInMidStreamIsAnIoExceptionAfterTheBytes() throws Exception {
        bridge.fetch = (request, out) -> {
            out.onNext(chunk(1000));
            out.onError(FakeBridge.error(Status.DATA_LOSS.withDescription("batch 9"), "corrupt_object"));
        };
        try (InputStream in = fetch()) {
            assertEquals(1000, in.readNBytes(1000).length);
            IOException e = assertThrows(IOException.class, in::read);
            assertContains("failed while reading: DATA_LOSS (corrupt_object): batch 9", e.getMessage());
            assertThrows(IOException.class, in::read);
        }
    }

    @Test
    void closingEarlyCancelsTheCall() throws Exception {
        serve(new byte[50_000_000], 200_000);
        InputStream in = fetch();
        in.read(new byte[1_000_000]);
        in.close();
        in.close();
        assertTrue(bridge.cancelled.await(5, TimeUnit.SECONDS));
        assertEquals(0, in.available());
        assertThrows(IOException.class, in::read);
    }

    @Test
    void aReaderThatPausesBoundsWhatTheBridgeSends() throws Exception {
        serve(new byte[50_000_000], 200_000);
        try (InputStream in = fetch()) {
            Thread.sleep(500);
            // two frames held here, one window on the way, and what the server's own queue takes
            assertTrue(sent.get() <= 2 * 200_000 + 256 * 1024 + 400_000, "sent " + sent.get());
            int before = sent.get();
            in.readNBytes(2_000_000);
            Thread.sleep(300);
            assertTrue(sent.get() - before <= 2_000_000 + 600_000, "sent " + sent.get());
        }
    }

    @Test
    void oneReaderThatPausesDoesNotHoldUpAnother() throws Exception {
        serve(new byte[5_000_000], 200_000);
        try (InputStream first = fetch(); InputStream second = fetch(); InputStream third = fetch()) {
            assertEquals(5_000_000, third.readAllBytes().length);
            assertEquals(5_000_000, second.readAllBytes().length);
            assertEquals(5_000_000, first.readAllBytes().length);
        }
    }

    @Test
    void theFirstBytesHaveADeadline() throws Exception {
        waitShortly();
        bridge.fetch = (request, out) -> { };
        long start = System.nanoTime();
        RemoteStorageException e = assertThrows(RemoteStorageException.class, this::fetch);
        long ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        assertTrue(ms >= 590, ms + " ms");
        assertContains("while waiting for the first bytes: DEADLINE_EXCEEDED (deadline): nothing from the bridge for "
            + "600 ms", e.getMessage());
        assertTrue(bridge.cancelled.await(5, TimeUnit.SECONDS));
        serve(new byte[10], 10);
        assertEquals(10, fetch().readAllBytes().length);
    }

    @Test
    void framesWithoutAByteAreSilence() throws Exception {
        waitShortly();
        ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor();
        try {
            bridge.fetch = (request, out) -> clock.scheduleWithFixedDelay(() -> out.onNext(chunk(0)), 0, 20,
                TimeUnit.MILLISECONDS);
            assertContains("nothing from the bridge for 600 ms",
                assertThrows(RemoteStorageException.class, this::fetch).getMessage());
        } finally {
            clock.shutdownNow();
        }
    }

    @Test
    void furtherFramesHaveADeadline() throws Exception {
        manager.close();
        manager = Shim.connect(bridge.port(), "fetch.frame.timeout.ms", "400");
        bridge.fetch = (request, out) -> out.onNext(chunk(1000));
        try (InputStream in = fetch()) {
            in.readNBytes(1000);
            long start = System.nanoTime();
            IOException e = assertThrows(IOException.class, in::read);
            long ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            assertTrue(ms >= 390, ms + " ms");
            assertContains("nothing from the bridge for 400 ms", e.getMessage());
        }
        assertTrue(bridge.cancelled.await(5, TimeUnit.SECONDS));
    }

    @Test
    void interruptsCancelAndAreRestored() throws Exception {
        bridge.fetch = (request, out) -> { };
        AtomicReference<String> problem = new AtomicReference<>("not run");
        interrupted(() -> {
            RemoteStorageException e = assertThrows(RemoteStorageException.class, this::fetch);
            assertContains(": interrupted", e.getMessage());
        }, problem);
        assertEquals(null, problem.get());
        bridge.fetch = (request, out) -> out.onNext(chunk(1000));
        interrupted(() -> {
            try (InputStream in = fetch()) {
                in.readNBytes(1000);
                IOException e = assertThrows(IOException.class, in::read);
                assertInstanceOf(InterruptedIOException.class, e);
            }
        }, problem);
        assertEquals(null, problem.get());
        assertTrue(bridge.cancelled.await(5, TimeUnit.SECONDS));
    }

    private interface Body {
        void run() throws Exception;
    }

    private static void interrupted(Body body, AtomicReference<String> problem) throws InterruptedException {
        Thread reader = new Thread(() -> {
            try {
                body.run();
                problem.set(Thread.currentThread().isInterrupted() ? null : "flag not restored");
            } catch (Throwable e) {
                problem.set(e.toString());
            }
        });
        reader.start();
        Thread.sleep(250);
        reader.interrupt();
        reader.join(5_000);
    }

    @Test
    void anotherProtocolVersionIsRefused() {
        bridge.protocol = "9";
        serve(new byte[10], 10);
        RemoteStorageException e = assertThrows(RemoteStorageException.class, this::fetch);
        assertContains("the plugin speaks protocol version 1, the bridge answered with version 9", e.getMessage());
    }

    @Test
    void aBridgeThatGoesAwayInMidStreamAndComesBack() throws Exception {
        serve(new byte[50_000_000], 200_000);
        int port = bridge.port();
        InputStream in = fetch();
        in.read(new byte[1000]);
        bridge.close();
        assertThrows(IOException.class, in::readAllBytes);
        assertThrows(RemoteStorageException.class, this::fetch);
        assertThrows(RemoteStorageException.class, this::fetch);
        bridge = new FakeBridge(port, null);
        serve(new byte[10], 10);
        assertEquals(10, fetch().readAllBytes().length);
    }

    private static void assertContains(String part, String text) {
        assertTrue(text.contains(part), text);
    }
}
