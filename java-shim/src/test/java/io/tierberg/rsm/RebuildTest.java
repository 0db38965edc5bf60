package io.tierberg.rsm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
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
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** The two reads that a follower with an empty log depends on: what they do while bridges are away. */
@Timeout(90)
class RebuildTest {
    private static final String[] SETTINGS = {"fetch.first.byte.timeout.ms", "1000", "fetch.frame.timeout.ms", "1000",
        "connect.timeout.ms", "500", "rebuild.timeout.ms", "3000"};
    private Fakes fakes;
    private TierbergRemoteStorageManager manager;

    @BeforeEach
    void start() throws IOException {
        fakes = new Fakes(2);
        manager = Shim.connect(fakes.target(), SETTINGS);
    }

    @AfterEach
    void stop() {
        manager.close();
        fakes.close();
    }

    private static byte[] read(TierbergRemoteStorageManager from, Uuid segment, IndexType type) throws Exception {
        try (InputStream in = from.fetchIndex(Shim.segment(1, segment), type)) {
            return in.readAllBytes();
        }
    }

    private String failure(Uuid segment, IndexType type) {
        RemoteStorageException e = assertThrows(RemoteStorageException.class, () -> read(manager, segment, type));
        return e.getMessage();
    }

    private static long millisSince(long start) {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
    }

    private static CompletableFuture<byte[]> reading(TierbergRemoteStorageManager from, IndexType type) {
        return CompletableFuture.supplyAsync(() -> {
            try {
                return read(from, Uuid.randomUuid(), type);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }, task -> new Thread(task).start());
    }

    /** The pod was killed; its successor has another address and is there 20 seconds later. */
    @Test
    void bothReadsOutlastAnOutageOf20Seconds() throws Exception {
        FakeBridge killed = new FakeBridge(new InetSocketAddress("127.0.0.1", 0), null);
        int port = killed.port();
        killed.close();
        InetAddress[] address = {InetAddress.getByName("127.0.0.1")};
        try (TierbergRemoteStorageManager own = Shim.configured(
                new TierbergRemoteStorageManager(host -> address.clone()), "dns:///bridges.example:" + port)) {
            long start = System.nanoTime();
            CompletableFuture<byte[]> epochs = reading(own, IndexType.LEADER_EPOCH);
            CompletableFuture<byte[]> snapshot = reading(own, IndexType.PRODUCER_SNAPSHOT);
            Thread.sleep(20_000);
            assertTrue(!epochs.isDone() && !snapshot.isDone(), "one of them gave up");
            try (FakeBridge successor = new FakeBridge(new InetSocketAddress("127.0.0.2", port), null)) {
                successor.index = (request, out) -> FakeBridge.stream(Shim.EPOCHS, 5, out, new AtomicInteger());
                address[0] = InetAddress.getByName("127.0.0.2");
                assertArrayEquals(Shim.EPOCHS, epochs.get(10, TimeUnit.SECONDS));
                assertArrayEquals(Shim.EPOCHS, snapshot.get(10, TimeUnit.SECONDS));
            }
            assertTrue(millisSince(start) < 25_000, millisSince(start) + " ms");
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"OFFSET", "TIMESTAMP", "TRANSACTION"})
    void consumersIndexesFailAtOnce(IndexType type) {
        fakes.close();
        long start = System.nanoTime();
        failure(Uuid.randomUuid(), type);
        assertTrue(millisSince(start) < 1_500, millisSince(start) + " ms");
    }

    /** The fetcher thread serves other partitions too: an outage is waited for once, whoever asks. */
    @Test
    void theTimeIsForTheOutageNotForEachRead() {
        fakes.close();
        long start = System.nanoTime();
        String message = failure(Uuid.randomUuid(), IndexType.LEADER_EPOCH);
        assertTrue(millisSince(start) >= 2_900 && millisSince(start) < 4_500, millisSince(start) + " ms");
        assertTrue(message.matches("(?s).*fetch of the LEADER_EPOCH index .* failed .*, asked \\d+ times].*"), message);
        fakes.list.forEach(fake -> assertTrue(message.contains(fake.target()), message));
        assertTrue(message.length() < 1_000, message);
        for (int i = 0; i < 3; i++) {
            start = System.nanoTime();
            failure(Uuid.randomUuid(), IndexType.PRODUCER_SNAPSHOT);
            assertTrue(millisSince(start) < 1_000, millisSince(start) + " ms");
        }
    }

    @Test
    void aSuccessEndsTheOutage() throws Exception {
        fakes.close();
        failure(Uuid.randomUuid(), IndexType.LEADER_EPOCH);
        fakes.list.set(0, new FakeBridge(fakes.list.get(0).port(), null));
        fakes.serve(0, Shim.EPOCHS);
        assertArrayEquals(Shim.EPOCHS, read(manager, Uuid.randomUuid(), IndexType.LEADER_EPOCH));
        fakes.list.get(0).close();
        long start = System.nanoTime();
        failure(Uuid.randomUuid(), IndexType.LEADER_EPOCH);
        assertTrue(millisSince(start) >= 2_900, millisSince(start) + " ms");
    }

    /** One object that cannot be read holds up the fetcher thread once, though all others are read meanwhile. */
    @Test
    void oneSegmentsTroubleIsWaitedForOnce() throws Exception {
        Uuid bad = Uuid.randomUuid();
        for (FakeBridge fake : fakes.list) {
            fake.index = (request, out) -> {
                long id = request.getSegment().getSegmentId().asReadOnlyByteBuffer().getLong();
                if (id == bad.getMostSignificantBits()) {
                    out.onError(FakeBridge.error(Status.UNAVAILABLE.withDescription("503"), "store_unavailable"));
                } else {
                    FakeBridge.stream(Shim.EPOCHS, 100, out, new AtomicInteger());
                }
            };
        }
        long start = System.nanoTime();
        failure(bad, IndexType.LEADER_EPOCH);
        assertTrue(millisSince(start) >= 2_900, millisSince(start) + " ms");
        for (int i = 0; i < 3; i++) {
            assertArrayEquals(Shim.EPOCHS, read(manager, Uuid.randomUuid(), IndexType.LEADER_EPOCH));
            start = System.nanoTime();
            assertTrue(failure(bad, IndexType.LEADER_EPOCH).contains("503"));
            assertTrue(millisSince(start) < 500, millisSince(start) + " ms");
        }
    }

    @Test
    void anOverloadedBridgeIsAskedAgain() throws Exception {
        AtomicInteger asked = new AtomicInteger();
        for (FakeBridge fake : fakes.list) {
            fake.index = (request, out) -> {
                if (asked.incrementAndGet() < 4) {
                    out.onError(FakeBridge.error(Status.RESOURCE_EXHAUSTED.withDescription("x"), "overloaded"));
                } else {
                    FakeBridge.stream(Shim.EPOCHS, 100, out, new AtomicInteger());
                }
            };
        }
        assertArrayEquals(Shim.EPOCHS, read(manager, Uuid.randomUuid(), IndexType.PRODUCER_SNAPSHOT));
        assertEquals(4, asked.get());
    }

    @Test
    void anAnswerIsFinal() {
        for (FakeBridge fake : fakes.list) {
            fake.index = (request, out) ->
                out.onError(FakeBridge.error(Status.NOT_FOUND.withDescription("gone"), "segment_deleted"));
        }
        long start = System.nanoTime();
        assertThrows(RemoteResourceNotFoundException.class,
            () -> read(manager, Uuid.randomUuid(), IndexType.LEADER_EPOCH));
        assertTrue(millisSince(start) < 1_000, millisSince(start) + " ms");
    }

    /** It had given bytes when it died: the next one is asked for all of them. */
    @Test
    void aBridgeThatFailsInMidFileIsLeftForTheNext() throws Exception {
        Uuid segment = fakes.segmentOf(0);
        byte[] snapshot = Shim.random(3_000_000, 7);
        fakes.list.get(0).index = (request, out) -> {
            out.onNext(FetchChunk.newBuilder().setData(ByteString.copyFrom(snapshot, 0, 200_000)).build());
            out.onError(Status.UNAVAILABLE.asRuntimeException());
        };
        fakes.serve(1, snapshot);
        assertArrayEquals(snapshot, read(manager, segment, IndexType.PRODUCER_SNAPSHOT));
    }

    /** Beyond 8 MiB it stays with the bridge until Kafka reads on. */
    @Test
    void aLargeSnapshotComesWhole() throws Exception {
        byte[] snapshot = Shim.random(20_000_000, 8);
        fakes.serve(0, snapshot);
        fakes.serve(1, snapshot);
        assertArrayEquals(snapshot, read(manager, Uuid.randomUuid(), IndexType.PRODUCER_SNAPSHOT));
        manager.fetchIndex(Shim.segment(1), IndexType.PRODUCER_SNAPSHOT).close();
    }

    @Test
    void anInterruptEndsTheWaitAtOnce() throws Exception {
        fakes.close();
        Thread reader = Thread.currentThread();
        CompletableFuture<Void> interrupt = CompletableFuture.runAsync(reader::interrupt,
            CompletableFuture.delayedExecutor(600, TimeUnit.MILLISECONDS));
        long start = System.nanoTime();
        String message = failure(Uuid.randomUuid(), IndexType.LEADER_EPOCH);
        assertTrue(Thread.interrupted());
        assertTrue(message.endsWith(": interrupted"), message);
        assertTrue(millisSince(start) < 1_200, millisSince(start) + " ms");
        interrupt.get();
    }

    @Test
    void closeEndsTheWaitAtOnce() throws Exception {
        fakes.close();
        CompletableFuture<byte[]> read = reading(manager, IndexType.LEADER_EPOCH);
        Thread.sleep(600);
        long start = System.nanoTime();
        manager.close();
        assertThrows(Exception.class, () -> read.get(5, TimeUnit.SECONDS));
        assertTrue(millisSince(start) < 1_000, millisSince(start) + " ms");
    }

    @Test
    void nothingIsSaidOfRepeatsWhileThePluginStops() throws Exception {
        for (FakeBridge fake : fakes.list) {
            fake.index = (request, out) -> { };
        }
        CompletableFuture<byte[]> read = reading(manager, IndexType.LEADER_EPOCH);
        Thread.sleep(200);
        String log = Logged.during(() -> {
            manager.close();
            assertThrows(ExecutionException.class, () -> read.get(5, TimeUnit.SECONDS));
        });
        assertTrue(!log.contains("is repeated"), log);
    }

    /** One that takes the call and is silent: what is left of the time is less than it usually gets. */
    @Test
    void theLastAskEndsWithTheTime() {
        AtomicInteger asked = new AtomicInteger();
        for (FakeBridge fake : fakes.list) {
            fake.index = (request, out) -> {
                if (asked.incrementAndGet() <= 2) {
                    out.onError(Status.UNAVAILABLE.asRuntimeException());
                }
            };
        }
        try (TierbergRemoteStorageManager own = Shim.connect(fakes.target(), "fetch.first.byte.timeout.ms", "20000",
                "rebuild.timeout.ms", "2000")) {
            long start = System.nanoTime();
            assertThrows(RemoteStorageException.class, () -> read(own, Uuid.randomUuid(), IndexType.LEADER_EPOCH));
            assertTrue(millisSince(start) < 4_000, millisSince(start) + " ms");
        }
        assertTrue(asked.get() > 2, asked + " asked");
    }

    @Test
    void theWaitCanBeSwitchedOff() {
        fakes.close();
        try (TierbergRemoteStorageManager own = Shim.connect(fakes.target(), "rebuild.timeout.ms", "0")) {
            long start = System.nanoTime();
            assertThrows(RemoteStorageException.class, () -> read(own, Uuid.randomUuid(), IndexType.LEADER_EPOCH));
            assertTrue(millisSince(start) < 1_000, millisSince(start) + " ms");
        }
    }
}
