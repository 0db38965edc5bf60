package io.tierberg.rsm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tierberg.rsm.proto.LaterTransactionIndex;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** What a copy of [100, 199] carries of the segments behind it. */
@Timeout(30)
class LaterTransactionIndexesTest {
    @TempDir
    Path folder;
    private LogSegmentData data;
    private boolean complete;

    @BeforeEach
    void files() throws IOException {
        data = Shim.files(folder, Shim.random(10, 1), true);
        write(100, 34);
        write(199, 34);
    }

    private void write(long base, int size) throws IOException {
        Files.write(folder.resolve("%020d.txnindex".formatted(base)), Shim.random(size, base));
    }

    private List<LaterTransactionIndex> copied(String... settings) throws Exception {
        try (FakeBridge bridge = new FakeBridge();
             TierbergRemoteStorageManager manager = Shim.connect(bridge.port(), settings)) {
            manager.copyLogSegmentData(Shim.segment(1), data);
            assertNull(bridge.recorded.wrong);
            complete = bridge.recorded.laterComplete;
            return bridge.recorded.later;
        }
    }

    private List<Long> peeked() throws Exception {
        return copied("peek.later.txn.indexes", "true").stream().map(LaterTransactionIndex::getBaseOffset).toList();
    }

    @Test
    void nothingUnlessAskedFor() throws Exception {
        write(200, 34);
        assertEquals(List.of(), copied());
        assertFalse(complete);
    }

    @Test
    void noneThereIsSaidToo() throws Exception {
        assertEquals(List.of(), peeked());
        assertTrue(complete);
    }

    @Test
    void laterOnesInOrder() throws Exception {
        write(1_000, 68);
        write(200, 34);
        write(300, 0);
        Files.writeString(folder.resolve("00000000000000000400.txnindex.deleted"), "x");
        Files.writeString(folder.resolve("400.txnindex"), "x");
        Files.writeString(folder.resolve("99999999999999999999.txnindex"), "x");
        List<LaterTransactionIndex> seen = copied("peek.later.txn.indexes", "true");
        assertEquals(List.of(200L, 300L, 1_000L), peeked());
        assertTrue(complete);
        assertArrayEquals(Shim.random(34, 200), seen.get(0).getData().toByteArray());
        assertEquals(0, seen.get(1).getData().size());
        assertArrayEquals(Shim.random(68, 1_000), seen.get(2).getData().toByteArray());
    }

    @Test
    void theirNumberIsLimited() throws Exception {
        for (int i = 0; i < LaterTransactionIndexes.FILES_MAX; i++) {
            write(200 + i, 34);
        }
        assertEquals(LaterTransactionIndexes.FILES_MAX, peeked().size());
        assertTrue(complete);
        for (int i = LaterTransactionIndexes.FILES_MAX; i < 40; i++) {
            write(200 + i, 34);
            List<Long> seen = peeked();
            assertEquals(LaterTransactionIndexes.FILES_MAX, seen.size());
            assertEquals(231, seen.get(31));
            assertFalse(complete);
        }
    }

    @Test
    void theirBytesAreLimited() throws Exception {
        write(200, LaterTransactionIndexes.BYTES_MAX - 34);
        write(201, 34);
        write(202, 34);
        assertEquals(List.of(200L, 201L), peeked());
        assertFalse(complete);
        write(200, LaterTransactionIndexes.BYTES_MAX + 1);
        assertEquals(List.of(), peeked());
    }

    /** A folder of that name cannot be read as a file. */
    @Test
    void whatCannotBeReadEndsTheListAndFailsNothing() throws Exception {
        write(200, 34);
        Files.createDirectories(folder.resolve("%020d.txnindex".formatted(201)).resolve("x"));
        write(202, 34);
        assertEquals(List.of(200L), peeked());
        assertFalse(complete);
    }
}
