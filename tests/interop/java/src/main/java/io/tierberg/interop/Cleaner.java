package io.tierberg.interop;

import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter.BatchRetention;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter.BatchRetentionResult;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;

import java.nio.ByteBuffer;
import java.util.Random;

/** What Kafka's log cleaner does to a batch: records go, batches stay as empty headers, tombstones get a horizon. */
final class Cleaner {
    private Cleaner() { }

    static ByteBuffer clean(ByteBuffer batch, Random random, long now) {
        int keep = random.nextInt(4);
        boolean retainEmpty = random.nextBoolean();
        RecordFilter filter = new RecordFilter(now, 86_400_000L) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch header) {
                return new BatchRetentionResult(retainEmpty ? BatchRetention.RETAIN_EMPTY
                    : BatchRetention.DELETE_EMPTY, false);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch header, Record record) {
                return header.isControlBatch() || keep != 0 && random.nextInt(4) < keep;
            }
        };
        ByteBuffer cleaned = ByteBuffer.allocate(batch.remaining() + 1024);
        ByteBuffer out = MemoryRecords.readableRecords(batch).filterTo(filter, cleaned, BufferSupplier.NO_CACHING)
            .outputBuffer();
        return out.flip();
    }
}
