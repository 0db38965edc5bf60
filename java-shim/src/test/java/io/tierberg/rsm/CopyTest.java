package io.tierberg.rsm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.CallOptions;
import io.grpc.Status;
import io.tierberg.rsm.proto.CopyRequest;
import io.tierberg.rsm.proto.CopyResponse;
import io.tierberg.rsm.proto.Heartbeat;
import io.tierberg.rsm.proto.IndexType;
import io.tierberg.rsm.proto.SegmentMetadata;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.net.InetAddress;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

@Timeout(30)
class CopyTest {
    @TempDir
    Path folder;
    private FakeBridge bridge;
    private TierbergRemoteStorageManager manager;

    @BeforeEach
    void start() throws IOException {
        bridge = new FakeBridge();
        manager = Shim.connect(bridge.port());
    }

    /** From now on; a loaded machine takes longer than this for a copy that succeeds. */
    private void waitShortly() {
        manager.close();
        manager = Shim.connect(bridge.port(), "copy.stall.timeout.ms", "700", "copy.progress.timeout.ms", "2000");
    }

    @AfterEach
    void stop() {
        manager.close();
        bridge.close();
    }

    private void progressShortly() {
        manager.close();
        manager = Shim.connect(bridge.port(), "copy.stall.timeout.ms", "10000", "copy.progress.timeout.ms", "2000");
    }

    private byte[] copy(byte[] log) throws IOException, RemoteStorageException {
        return copy(Shim.files(folder, log, true));
    }

    private byte[] copy(LogSegmentData data) throws RemoteStorageException {
        return manager.copyLogSegmentData(Shim.segment(1234), data).get().value();
    }

    private String failure(byte[] log) throws IOException {
        LogSegmentData data = Shim.files(folder, log, true);
        RemoteStorageException e = assertThrows(RemoteStorageException.class, () -> copy(data));
        assertSame(RemoteStorageException.class, e.getClass(), "never the retriable kind");
        for (Throwable t = e.getCause(); t != null; t = t.getCause()) {
            assertFalse(t.getClass().getName().startsWith("io.grpc"), t.toString());
        }
        assertTrue(e.getMessage().startsWith("copy of segment " + Shim.TOPIC_ID + ":orders-7 " + Shim.SEGMENT_ID
            + " [100, 199] failed while "), e.getMessage());
        return e.getMessage();
    }

    private static void assertContains(String part, String text) {
        assertTrue(text.contains(part), text);
    }

    @Test
    void everythingArrivesByteForByte() throws Exception {
        byte[] log = Shim.random(5_000_001, 11);
        assertArrayEquals(new byte[40], copy(log));
        FakeBridge.Recorder seen = bridge.recorded;
        assertNull(seen.wrong);
        assertArrayEquals(log, seen.log.toByteArray());
        assertEquals(SegmentCopy.FRAME_BYTES, seen.largestFrame);
        assertArrayEquals(Shim.random(800, 1), seen.files.get(IndexType.OFFSET));
        assertArrayEquals(Shim.random(1200, 2), seen.files.get(IndexType.TIMESTAMP));
        assertArrayEquals(Shim.random(60, 3), seen.files.get(IndexType.PRODUCER_SNAPSHOT));
        assertArrayEquals(Shim.random(34, 4), seen.files.get(IndexType.TRANSACTION));
        assertArrayEquals(Shim.EPOCHS, seen.files.get(IndexType.LEADER_EPOCH));
        assertEquals("1", bridge.seenProtocol);
    }

    /** A bridge has room for so much: what it may leave out comes last. */
    @Test
    void whatReadsNeedComesBeforeTheProducerSnapshot() throws Exception {
        copy(Shim.random(10, 1));
        assertEquals(List.of(IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.TRANSACTION, IndexType.LEADER_EPOCH,
            IndexType.PRODUCER_SNAPSHOT), List.copyOf(bridge.recorded.announced.keySet()));
    }

    @Test
    void metadataIsWhatTheBrokerGave() throws Exception {
        copy(Shim.random(10, 1));
        SegmentMetadata segment = bridge.recorded.segment;
        assertEquals("test", segment.getClusterName());
        assertEquals("orders", segment.getTopic());
        assertEquals(7, segment.getPartition());
        assertArrayEquals(new byte[] {1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18},
            segment.getTopicId().toByteArray());
        assertEquals(0x21, segment.getSegmentId().byteAt(0));
        assertEquals(0x38, segment.getSegmentId().byteAt(15));
        assertEquals(100, segment.getStartOffset());
        assertEquals(199, segment.getEndOffset());
        assertEquals(1_700_000_000_123L, segment.getMaxTimestampMs());
        assertEquals(1_700_000_001_000L, segment.getEventTimestampMs());
        assertEquals(3, segment.getBrokerId());
        assertEquals(1234, segment.getSegmentSizeBytes());
        assertEquals(2, segment.getLeaderEpochsCount());
        assertEquals(3, segment.getLeaderEpochs(0).getEpoch());
        assertEquals(150, segment.getLeaderEpochs(1).getStartOffset());
        assertArrayEquals(new byte[] {9, 8, 7}, segment.getCustomMetadata().toByteArray());
    }

    @Test
    void withoutTransactionIndexAndWithAnEmptyLog() throws Exception {
        assertEquals(40, copy(Shim.files(folder, new byte[0], false)).length);
        assertNull(bridge.recorded.wrong);
        assertFalse(bridge.recorded.files.containsKey(IndexType.TRANSACTION));
        assertEquals(0, bridge.recorded.log.size());
    }

    @Test
    void restartInMidCopyAndAfterTheEndSendsAllFramesOnceMore() throws Exception {
        for (boolean afterEnd : new boolean[] {false, true}) {
            bridge.copy = out -> new FakeBridge.Recorder(out) {
                private boolean asked;

                @Override
                void onFrame() {
                    if (!afterEnd && !asked && log.size() > 2_000_000) {
                        asked = true;
                        out.onNext(FakeBridge.restart());
                    }
                }

                @Override
                void onEnd() {
                    if (afterEnd && !asked) {
                        asked = true;
                        out.onNext(FakeBridge.restart());
                    } else if (passes == 2) {
                        super.onEnd();
                    }
                }
            };
            byte[] log = Shim.random(4_000_000, 12);
            assertEquals(40, copy(log).length);
            assertEquals(2, bridge.recorded.passes);
            assertNull(bridge.recorded.wrong);
            assertArrayEquals(log, bridge.recorded.log.toByteArray());
        }
    }

    @Test
    void aSecondRestartIsAnError() throws Exception {
        bridge.copy = out -> new FakeBridge.Recorder(out) {
            @Override
            void onEnd() {
                out.onNext(FakeBridge.restart());
            }
        };
        assertContains("second restart: converter fell over", failure(Shim.random(100, 1)));
    }

    @Test
    void customMetadataMustBe1To128Bytes() throws Exception {
        for (int size : new int[] {1, 128, 0, 129}) {
            bridge.copy = out -> new FakeBridge.Recorder(out) {
                @Override
                void onEnd() {
                    out.onNext(FakeBridge.result(size));
                    out.onCompleted();
                }
            };
            if (size >= 1 && size <= 128) {
                assertEquals(size, copy(Shim.random(100, 1)).length);
            } else {
                assertContains("answered with " + size + " bytes of custom metadata", failure(Shim.random(100, 1)));
            }
        }
    }

    @Test
    void errorsNameStepCodeKindAndText() throws Exception {
        bridge.copy = out -> new FakeBridge.Recorder(out) {
            @Override
            void onEnd() {
                out.onError(FakeBridge.error(Status.INVALID_ARGUMENT.withDescription("batch 3 at byte 77 is cut"),
                    "invalid_segment"));
            }
        };
        String message = failure(Shim.random(100, 1));
        assertContains("failed while waiting for the bridge to store the segment: "
            + "INVALID_ARGUMENT (invalid_segment): batch 3 at byte 77 is cut", message);
    }

    @Test
    void anUnavailableStoreIsNoRetriableException() throws Exception {
        bridge.copy = out -> new FakeBridge.Recorder(out) {
            @Override
            void onEnd() {
                out.onError(FakeBridge.error(Status.UNAVAILABLE.withDescription("store is away"),
                    "store_unavailable"));
            }
        };
        assertContains("UNAVAILABLE (store_unavailable): store is away", failure(Shim.random(100, 1)));
    }

    @Test
    void endWithoutResultIsAnError() throws Exception {
        bridge.copy = out -> new FakeBridge.Recorder(out) {
            @Override
            void onEnd() {
                out.onCompleted();
            }
        };
        assertContains("ended the call without a result", failure(Shim.random(100, 1)));
    }

    @Test
    void aSilentBridgeIsAStall() throws Exception {
        waitShortly();
        bridge.copy = out -> new FakeBridge.Recorder(out) {
            @Override
            void onEnd() { }
        };
        assertContains("no sign of life from the bridge for 700 ms", failure(Shim.random(100, 1)));
        assertTrue(bridge.cancelled.await(5, TimeUnit.SECONDS));
    }

    @Test
    void aBridgeThatTakesNothingIsAStall() throws Exception {
        waitShortly();
        bridge.copy = out -> {
            out.disableAutoRequest();
            return new FakeBridge.Recorder(out);
        };
        assertContains("no sign of life", failure(Shim.random(20_000_000, 1)));
    }

    @Test
    void heartbeatsKeepACopyAliveUntilNothingChanges() throws Exception {
        progressShortly();
        ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor();
        try {
            bridge.copy = out -> new FakeBridge.Recorder(out) {
                @Override
                void onEnd() {
                    for (int i = 1; i <= 7; i++) {
                        int beat = i;
                        clock.schedule(() -> out.onNext(FakeBridge.heartbeat(beat, "writing")), beat * 200L,
                            TimeUnit.MILLISECONDS);
                    }
                    clock.schedule(super::onEnd, 1600, TimeUnit.MILLISECONDS);
                }
            };
            assertEquals(40, copy(Shim.random(100, 1)).length);
            bridge.copy = out -> new FakeBridge.Recorder(out) {
                @Override
                void onEnd() {
                    clock.scheduleAtFixedRate(() -> out.onNext(FakeBridge.heartbeat(100, "writing")), 0, 100,
                        TimeUnit.MILLISECONDS);
                }
            };
            assertContains("got no further for 2000 ms (writing, 100 bytes received)", failure(Shim.random(100, 1)));
        } finally {
            clock.shutdownNow();
        }
    }

    @Test
    void waitingForAPlaceIsProgress() throws Exception {
        progressShortly();
        ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor();
        try {
            bridge.copy = out -> {
                clock.scheduleAtFixedRate(() -> out.onNext(CopyResponse.newBuilder().setHeartbeat(
                    Heartbeat.newBuilder().setStage("waiting").setCopiesAhead(3)).build()), 0, 100, TimeUnit.MILLISECONDS);
                return new FakeBridge.Recorder(out) {
                    @Override
                    void onEnd() {
                        clock.schedule(() -> {
                            clock.shutdownNow();
                            super.onEnd();
                        }, 3500, TimeUnit.MILLISECONDS);
                    }
                };
            };
            assertEquals(40, copy(Shim.random(100, 1)).length);
        } finally {
            clock.shutdownNow();
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"waiting", "writing"})
    void aCopyEndsWhateverTheBridgeSays(String stage) throws Exception {
        ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor();
        AtomicInteger beats = new AtomicInteger();
        bridge.copy = out -> new FakeBridge.Recorder(out) {
            @Override
            void onEnd() {
                clock.scheduleAtFixedRate(() -> out.onNext(FakeBridge.heartbeat(beats.incrementAndGet() % 2, stage)),
                    0, 20, TimeUnit.MILLISECONDS);
            }
        };
        ShimConfig config = ShimConfig.parse(Map.of("bridge.target", bridge.target(), "cluster.name", "test"));
        try (Bridges bridges = new Bridges(config, InetAddress::getAllByName);
             SegmentCopy copy = new SegmentCopy(config, SegmentMetadata.getDefaultInstance(),
                 Shim.files(folder, new byte[100], true), new Attempt("copy"), 1_500);
             BridgeCall<Object, CopyResponse> call = BridgeCall.start(bridges.forCopy(Shim.SEGMENT_ID).copy(),
                 BridgeMethods.COPY, CallOptions.DEFAULT)) {
            BridgeCall.Failure e = assertThrows(BridgeCall.Failure.class, () -> copy.run(call));
            assertContains("ABORTED (deadline): the bridge is alive but has no result after 1500 ms (" + stage,
                e.getMessage());
            assertFalse(e.unanswered());
        } finally {
            clock.shutdownNow();
        }
    }

    @Test
    void aBridgeThatDiesWhileACopyWaitsIsFoundInTime() throws Exception {
        waitShortly();
        bridge.copy = out -> new FakeBridge.Recorder(out) {
            @Override
            void onEnd() {
                out.onNext(CopyResponse.newBuilder().setHeartbeat(
                    Heartbeat.newBuilder().setStage("waiting").setCopiesAhead(5)).build());
            }
        };
        String said = failure(Shim.random(100, 1));
        assertContains("no sign of life from the bridge for 700 ms", said);
        assertContains("behind 5 other copies", said);
    }

    @Test
    void filesBesideTheLogOfAnySizeComeInPieces() throws Exception {
        byte[] snapshot = Shim.random(40_000_000, 5);
        LogSegmentData data = Shim.files(folder, Shim.random(100, 1), true);
        Files.write(data.producerSnapshotIndex(), snapshot);
        Files.write(data.timeIndex(), new byte[0]);
        assertEquals(40, copy(data).length);
        FakeBridge.Recorder seen = bridge.recorded;
        assertNull(seen.wrong);
        assertArrayEquals(snapshot, seen.files.get(IndexType.PRODUCER_SNAPSHOT));
        assertEquals(snapshot.length, seen.announced.get(IndexType.PRODUCER_SNAPSHOT));
        assertArrayEquals(new byte[0], seen.files.get(IndexType.TIMESTAMP));
        assertEquals(0, seen.announced.get(IndexType.TIMESTAMP));
        assertTrue(seen.largestPiece + 5 <= 1 << 20, "a piece fits one of gRPC's buffers");
    }

    @Test
    void aSlowBridgeIsNoStall() throws Exception {
        bridge.copy = out -> {
            out.disableAutoRequest();
            return new FakeBridge.Recorder(out) {
                @Override
                public void onNext(CopyRequest message) {
                    sleep(message.getData().isEmpty() ? 0 : 200);
                    super.onNext(message);
                    out.request(1);
                }

                {
                    out.request(1);
                }
            };
        };
        byte[] log = Shim.random(6_000_000, 13);
        copy(log);
        assertArrayEquals(log, bridge.recorded.log.toByteArray());
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @Test
    void anInterruptCancelsTheCallAndIsRestored() throws Exception {
        bridge.copy = out -> new FakeBridge.Recorder(out) {
            @Override
            void onEnd() { }
        };
        LogSegmentData data = Shim.files(folder, Shim.random(100, 1), true);
        AtomicReference<Throwable> thrown = new AtomicReference<>();
        AtomicReference<Boolean> flag = new AtomicReference<>();
        Thread copier = new Thread(() -> {
            thrown.set(assertThrows(RemoteStorageException.class, () -> copy(data)));
            flag.set(Thread.currentThread().isInterrupted());
        });
        copier.start();
        Thread.sleep(300);
        copier.interrupt();
        copier.join(5_000);
        assertTrue(thrown.get().getMessage().endsWith(": interrupted"), thrown.get().getMessage());
        assertTrue(flag.get());
        assertTrue(bridge.cancelled.await(5, TimeUnit.SECONDS));
    }

    @Test
    void aFlagSetBeforehandEndsTheCopyAtOnce() throws Exception {
        LogSegmentData data = Shim.files(folder, Shim.random(3_000_000, 1), true);
        Thread.currentThread().interrupt();
        RemoteStorageException e = assertThrows(RemoteStorageException.class, () -> copy(data));
        assertTrue(Thread.interrupted());
        assertTrue(e.getMessage().endsWith(": interrupted"), e.getMessage());
    }

    @Test
    void aLogThatIsCutInMidCopyIsNamed() throws Exception {
        LogSegmentData data = Shim.files(folder, Shim.random(9_000_000, 1), true);
        bridge.copy = out -> {
            out.disableAutoRequest();
            out.request(7);
            return new FakeBridge.Recorder(out) {
                @Override
                void onFrame() {
                    try (FileChannel channel = FileChannel.open(data.logSegment(), StandardOpenOption.WRITE)) {
                        channel.truncate(8_000_000);
                    } catch (IOException e) {
                        throw new IllegalStateException(e);
                    }
                    out.request(100);
                }
            };
        };
        RemoteStorageException e = assertThrows(RemoteStorageException.class, () -> copy(data));
        assertContains("log file ends at byte 8000000, expected ", e.getMessage());
        assertTrue(bridge.cancelled.await(5, TimeUnit.SECONDS));
    }

    @Test
    void aFileThatIsNotThereIsNamed() throws Exception {
        LogSegmentData data = Shim.files(folder, Shim.random(10, 1), true);
        Files.delete(data.timeIndex());
        RemoteStorageException e = assertThrows(RemoteStorageException.class, () -> copy(data));
        assertContains("failed while opening the segment's files: java.nio.file.NoSuchFileException", e.getMessage());
        assertContains("100.timeindex", e.getMessage());
    }

    @Test
    void filesMayBeDeletedOnceTheCopyRuns() throws Exception {
        byte[] log = Shim.random(5_000_000, 14);
        LogSegmentData data = Shim.files(folder, log, true);
        bridge.copy = out -> new FakeBridge.Recorder(out) {
            @Override
            public void onNext(CopyRequest message) {
                if (message.hasStart()) {
                    try {
                        Files.delete(data.logSegment());
                        Files.delete(data.timeIndex());
                    } catch (IOException e) {
                        throw new IllegalStateException(e);
                    }
                }
                super.onNext(message);
            }
        };
        copy(data);
        assertArrayEquals(log, bridge.recorded.log.toByteArray());
    }

    @Test
    void anotherOrNoProtocolVersionIsRefusedNamingBoth() throws Exception {
        bridge.protocol = "2";
        assertContains("the plugin speaks protocol version 1, the bridge answered with version 2",
            failure(Shim.random(10, 1)));
        bridge.protocol = null;
        assertContains("the bridge answered with version (none)", failure(Shim.random(10, 1)));
    }

    @Test
    void anAbsentBridgeFailsACopyAtOnceAndItsReturnIsSeenAtOnce() throws Exception {
        int port = bridge.port();
        bridge.close();
        for (int i = 0; i < 5; i++) {
            long start = System.nanoTime();
            assertContains("UNAVAILABLE: ", failure(Shim.random(10, 1)));
            assertTrue(System.nanoTime() - start < TimeUnit.MILLISECONDS.toNanos(1_500));
        }
        bridge = new FakeBridge(port, null);
        assertEquals(40, copy(Shim.random(10, 1)).length);
    }

    @Test
    void uncheckedFailuresAreRemoteStorageExceptionsToo() {
        RemoteStorageException e = assertThrows(RemoteStorageException.class,
            () -> manager.copyLogSegmentData(Shim.segment(1), null));
        assertContains("NullPointerException", e.getMessage());
    }
}
