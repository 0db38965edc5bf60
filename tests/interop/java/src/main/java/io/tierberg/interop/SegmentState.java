package io.tierberg.interop;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.CompletedTxn;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.TransactionIndex;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * The producer snapshot at a segment's end and its transaction index, as a broker that replays the segment writes
 * them: NAME.snapshot, and NAME.txnindex unless no transaction was aborted.
 */
final class SegmentState {
    private SegmentState() { }

    static void write(Path log, SegmentSpec spec, Path folder) throws IOException {
        Path index = folder.resolve(spec.name() + ".txnindex");
        Path snapshot = folder.resolve(spec.name() + ".snapshot");
        Files.deleteIfExists(index);
        Path work = Files.createTempDirectory(folder, "state");
        ProducerStateManager producers = new ProducerStateManager(new TopicPartition("interop", 0), work.toFile(),
            900_000, new ProducerStateManagerConfig(86_400_000, false), Time.SYSTEM);
        try (TransactionIndex aborted = new TransactionIndex(spec.base(), index.toFile());
             FileRecords records = FileRecords.open(log.toFile(), false)) {
            long end = spec.base();
            for (FileChannelRecordBatch batch : records.batches()) {
                end = batch.lastOffset() + 1;
                if (batch.hasProducerId()) {
                    replay(producers, aborted, batch);
                }
            }
            producers.updateMapEndOffset(Math.max(end, 1));
            producers.takeSnapshot();
            if (aborted.isEmpty()) {
                aborted.deleteIfExists();
            }
        }
        try (Stream<Path> files = Files.walk(work)) {
            List<Path> found = files.sorted(Comparator.reverseOrder()).toList();
            for (Path path : found) {
                if (path.toString().endsWith(".snapshot")) {
                    Files.move(path, snapshot, StandardCopyOption.REPLACE_EXISTING);
                } else {
                    Files.delete(path);
                }
            }
        }
    }

    private static void replay(ProducerStateManager producers, TransactionIndex aborted, FileChannelRecordBatch batch)
            throws IOException {
        ProducerAppendInfo update = producers.prepareUpdate(batch.producerId(), AppendOrigin.REPLICATION);
        Optional<CompletedTxn> ended = update.append(batch, batch.isTransactional()
            ? Optional.of(new LogOffsetMetadata(batch.baseOffset())) : Optional.empty());
        producers.update(update);
        if (ended.isPresent()) {
            if (ended.get().isAborted()) {
                aborted.append(new AbortedTxn(ended.get(), producers.lastStableOffset(ended.get())));
            }
            producers.completeTxn(ended.get());
        }
    }
}
