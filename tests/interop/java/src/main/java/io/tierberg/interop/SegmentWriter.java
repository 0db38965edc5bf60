package io.tierberg.interop;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** Writes segments of any shape with Kafka's own builders: NAME.log, and NAME.dump as {@link Dump} reads it back. */
final class SegmentWriter {
    private static final long NOW_MS = 1_750_000_000_000L;
    private static final int PRODUCERS = 4;

    private final SegmentSpec spec;
    private final Random random;
    private final int[] nextSequence = new int[PRODUCERS];
    private final boolean[] open = new boolean[PRODUCERS];
    private final List<ByteBuffer> written = new ArrayList<>();
    private long offset;
    private int epoch;

    private SegmentWriter(SegmentSpec spec) {
        this.spec = spec;
        this.random = new Random(spec.seed());
        this.offset = spec.base();
    }

    static void writeAll(Path specs, Path folder) throws IOException {
        for (String line : Files.readAllLines(specs)) {
            if (!line.isBlank()) {
                SegmentSpec spec = SegmentSpec.parse(line);
                Path log = folder.resolve(spec.name() + ".log");
                new SegmentWriter(spec).write(log);
                SegmentState.write(log, spec, folder);
                Dump.write(log, folder.resolve(spec.name() + ".dump"));
            }
        }
    }

    private void write(Path log) throws IOException {
        for (int i = 0; i < spec.batches(); i++) {
            if (i > 0 && random.nextInt(8) == 0) {
                epoch += 1 + random.nextInt(3);
            }
            written.add(batch());
            if (spec.gaps() && random.nextInt(3) == 0) {
                offset += 1 + random.nextInt(1000);
            }
        }
        if (spec.compacted()) {
            written.replaceAll(batch -> Cleaner.clean(batch, random, NOW_MS));
        }
        try (FileChannel out = FileChannel.open(log, StandardOpenOption.CREATE, StandardOpenOption.WRITE,
                StandardOpenOption.TRUNCATE_EXISTING)) {
            for (ByteBuffer batch : written) {
                while (batch.hasRemaining()) {
                    out.write(batch);
                }
            }
        }
    }

    private ByteBuffer batch() {
        String kind = pick(spec.kinds());
        return switch (kind) {
            case "plain" -> records(-1, false);
            case "idempotent" -> records(random.nextInt(PRODUCERS), false);
            case "transactional" -> records(random.nextInt(PRODUCERS), true);
            default -> control(kind);
        };
    }

    /** Producer ids 1000 … are idempotent, 2000 … transactional. */
    private ByteBuffer records(int producer, boolean transactional) {
        byte magic = producer >= 0 ? 2 : Byte.parseByte(pick(spec.magics()));
        String codec = pick(spec.codecs());
        if (magic < 2 && codec.equals("zstd")) {
            codec = "none";
        }
        int count = 1 + random.nextInt(spec.records());
        long id = producer < 0 ? RecordBatch.NO_PRODUCER_ID : (transactional ? 2000 : 1000) + producer;
        int sequence = producer < 0 ? RecordBatch.NO_SEQUENCE : nextSequence[producer];
        if (producer >= 0) {
            nextSequence[producer] += count;
            open[producer] |= transactional;
        }
        boolean append = pick(spec.timestamps()).equals("append") && magic > 0;
        boolean rewritten = append && random.nextBoolean();
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(4096), magic,
            Compression.of(codec).build(), append && !rewritten ? TimestampType.LOG_APPEND_TIME
            : TimestampType.CREATE_TIME, offset, NOW_MS, id, (short) (producer < 0 ? -1 : producer), sequence,
            transactional, false, magic < 2 ? RecordBatch.NO_PARTITION_LEADER_EPOCH : epoch, Integer.MAX_VALUE,
            RecordBatch.NO_TIMESTAMP);
        for (int i = 0; i < count; i++) {
            builder.appendWithOffset(offset, magic == 0 ? RecordBatch.NO_TIMESTAMP : timestamp(), bytes(false),
                bytes(true), magic < 2 ? new Header[0] : headers());
            offset += 1 + (spec.gaps() && producer < 0 && random.nextInt(5) == 0 ? random.nextInt(20) : 0);
        }
        MemoryRecords built = builder.build();
        if (rewritten && magic == 2) {
            for (MutableRecordBatch batch : built.batches()) {
                batch.setMaxTimestamp(TimestampType.LOG_APPEND_TIME, NOW_MS);
            }
        }
        return built.buffer();
    }

    private ByteBuffer control(String kind) {
        long at = offset++;
        ByteBuffer buffer = ByteBuffer.allocate(512);
        return switch (kind) {
            case "marker" -> marker(at);
            case "leader_change" -> MemoryRecords.withLeaderChangeMessage(at, NOW_MS, epoch, buffer,
                new LeaderChangeMessage().setVersion((short) 0).setLeaderId(random.nextInt(5))).buffer();
            case "snapshot" -> random.nextBoolean()
                ? MemoryRecords.withSnapshotHeaderRecord(at, NOW_MS, epoch, buffer, new SnapshotHeaderRecord()
                    .setVersion((short) 0).setLastContainedLogTimestamp(NOW_MS)).buffer()
                : MemoryRecords.withSnapshotFooterRecord(at, NOW_MS, epoch, buffer, new SnapshotFooterRecord()
                    .setVersion((short) 0)).buffer();
            case "kraft" -> random.nextBoolean()
                ? MemoryRecords.withKRaftVersionRecord(at, NOW_MS, epoch, buffer, new KRaftVersionRecord()
                    .setVersion((short) 0).setKRaftVersion((short) 1)).buffer()
                : MemoryRecords.withVotersRecord(at, NOW_MS, epoch, buffer, new VotersRecord()
                    .setVersion((short) 0)).buffer();
            default -> throw new IllegalArgumentException("unknown kind " + kind);
        };
    }

    /** Ends an open transaction, or writes the marker of an empty one. */
    private ByteBuffer marker(long at) {
        int producer = random.nextInt(PRODUCERS);
        for (int i = 0; i < PRODUCERS && !open[producer]; i++) {
            producer = (producer + 1) % PRODUCERS;
        }
        open[producer] = false;
        ControlRecordType type = random.nextBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        return MemoryRecords.withEndTransactionMarker(at, NOW_MS, epoch, 2000 + producer, (short) producer,
            new EndTransactionMarker(type, random.nextInt(9))).buffer();
    }

    private long timestamp() {
        int draw = spec.oddTimestamps() ? random.nextInt(20) : 19;
        return switch (draw) {
            case 0 -> RecordBatch.NO_TIMESTAMP;
            case 1 -> 0;
            case 2 -> Long.MAX_VALUE;
            case 3 -> NOW_MS + 86_400_000L * random.nextInt(1000);
            default -> NOW_MS - random.nextInt(10_000);
        };
    }

    private byte[] bytes(boolean value) {
        int draw = random.nextInt(12);
        if (draw < 2) {
            return draw == 0 ? null : new byte[0];
        }
        byte[] bytes = new byte[random.nextInt(1 + (value ? spec.valueBytes() : Math.min(60, spec.valueBytes())))];
        if (spec.compressible()) {
            for (int i = 0; i < bytes.length; i++) {
                bytes[i] = (byte) ("tierberg ".charAt(i % 9) + (i % 37 == 0 ? random.nextInt(3) : 0));
            }
        } else {
            random.nextBytes(bytes);
        }
        return bytes;
    }

    private Header[] headers() {
        Header[] headers = new Header[random.nextInt(3) == 0 ? random.nextInt(5) : 0];
        for (int i = 0; i < headers.length; i++) {
            headers[i] = new RecordHeader(pick(List.of("", "a", "trace-id", "trace-id", "größe", "鍵")), bytes(false));
        }
        return headers;
    }

    private <T> T pick(List<T> choices) {
        return choices.get(random.nextInt(choices.size()));
    }
}
