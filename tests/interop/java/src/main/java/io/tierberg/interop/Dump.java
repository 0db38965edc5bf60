package io.tierberg.interop;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;

/**
 * What Kafka's classes read in a file of record batches, as JSON lines. Every batch's checksum is verified.
 *
 * <p>A line with {@code "kind": "batch"} for each batch (position and size in the file, all header fields, CRC as an
 * unsigned number), followed by a line with {@code "kind": "record"} for each of its records; keys, values, header
 * names (as UTF-8) and header values are hexadecimal or null. The last line has {@code "kind": "segment"}: size in
 * bytes, first batch's base offset, last offset, largest timestamp, and the leader epochs as [epoch, start
 * offset]; batches of magic 0 and 1, which carry none, count to the epoch before them.
 */
final class Dump {
    private static final HexFormat HEX = HexFormat.of();

    private Dump() { }

    static void write(Path file, Path dump) throws IOException {
        try (FileRecords records = FileRecords.open(file.toFile(), false);
             BufferedWriter out = Files.newBufferedWriter(dump, StandardCharsets.UTF_8)) {
            Map<Integer, Long> epochs = new TreeMap<>();
            long start = -1;
            long end = -1;
            long maxTimestamp = -1;
            int position = 0;
            int epoch = 0;
            for (FileChannelRecordBatch batch : records.batches()) {
                batch.ensureValid();
                start = start < 0 ? batch.baseOffset() : start;
                end = batch.lastOffset();
                maxTimestamp = Math.max(maxTimestamp, batch.maxTimestamp());
                epoch = Math.max(epoch, batch.partitionLeaderEpoch());
                epochs.putIfAbsent(epoch, batch.baseOffset());
                out.write(batch(batch, position));
                position += batch.sizeInBytes();
                for (Record record : batch) {
                    record.ensureValid();
                    out.write(record(record));
                }
            }
            if (position != records.sizeInBytes()) {
                throw new IOException("batches end at byte " + position + " of " + records.sizeInBytes());
            }
            StringBuilder lineage = new StringBuilder();
            epochs.forEach((number, offset) -> lineage.append(lineage.isEmpty() ? "" : ", ")
                .append("[").append(number).append(", ").append(offset).append("]"));
            out.write("{\"kind\": \"segment\", \"size\": " + position + ", \"start_offset\": " + start
                + ", \"end_offset\": " + end + ", \"max_timestamp\": " + maxTimestamp + ", \"leader_epochs\": ["
                + lineage + "]}\n");
        }
    }

    private static String batch(RecordBatch batch, int position) {
        return "{\"kind\": \"batch\", \"position\": " + position
            + ", \"size\": " + batch.sizeInBytes()
            + ", \"magic\": " + batch.magic()
            + ", \"base_offset\": " + batch.baseOffset()
            + ", \"last_offset\": " + batch.lastOffset()
            + ", \"count\": " + batch.countOrNull()
            + ", \"codec\": \"" + batch.compressionType().name + "\""
            + ", \"timestamp_type\": \"" + batch.timestampType().name + "\""
            + ", \"max_timestamp\": " + batch.maxTimestamp()
            + ", \"producer_id\": " + batch.producerId()
            + ", \"producer_epoch\": " + batch.producerEpoch()
            + ", \"base_sequence\": " + batch.baseSequence()
            + ", \"transactional\": " + batch.isTransactional()
            + ", \"control\": " + batch.isControlBatch()
            + ", \"partition_leader_epoch\": " + batch.partitionLeaderEpoch()
            + ", \"delete_horizon\": " + (batch.deleteHorizonMs().isPresent() ? batch.deleteHorizonMs().getAsLong()
                : null)
            + ", \"crc\": " + batch.checksum() + "}\n";
    }

    private static String record(Record record) {
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers()) {
            headers.append(headers.isEmpty() ? "" : ", ").append("[")
                .append(hex(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8)))).append(", ")
                .append(hex(header.value() == null ? null : ByteBuffer.wrap(header.value()))).append("]");
        }
        return "{\"kind\": \"record\", \"offset\": " + record.offset()
            + ", \"timestamp\": " + record.timestamp()
            + ", \"sequence\": " + record.sequence()
            + ", \"key\": " + hex(record.key())
            + ", \"value\": " + hex(record.value())
            + ", \"headers\": [" + headers + "]}\n";
    }

    private static String hex(ByteBuffer bytes) {
        if (bytes == null) {
            return "null";
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return "\"" + HEX.formatHex(copy) + "\"";
    }
}
