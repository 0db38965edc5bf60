package io.tierberg.rsm;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Random;

/** Plugins, segments and files for tests. */
final class Shim {
    static final Uuid TOPIC_ID = new Uuid(0x0102030405060708L, 0x1112131415161718L);
    static final Uuid SEGMENT_ID = new Uuid(0x2122232425262728L, 0x3132333435363738L);
    static final byte[] EPOCHS = "0\n2\n3 100\n5 150\n".getBytes();

    private Shim() { }

    static TierbergRemoteStorageManager connect(int port, String... extra) {
        return connect("127.0.0.1:" + port, extra);
    }

    static TierbergRemoteStorageManager connect(String target, String... extra) {
        return configured(new TierbergRemoteStorageManager(), target, extra);
    }

    static TierbergRemoteStorageManager configured(TierbergRemoteStorageManager manager, String target,
                                                   String... extra) {
        Map<String, String> properties = new HashMap<>();
        properties.put("bridge.target", target);
        properties.put("cluster.name", "test");
        properties.put("broker.id", "3");
        for (int i = 0; i < extra.length; i += 2) {
            properties.put(extra[i], extra[i + 1]);
        }
        manager.configure(properties);
        return manager;
    }

    static RemoteLogSegmentMetadata segment(int size) {
        return segment(size, SEGMENT_ID);
    }

    static RemoteLogSegmentMetadata segment(int size, Uuid id) {
        return new RemoteLogSegmentMetadata(
            new RemoteLogSegmentId(new TopicIdPartition(TOPIC_ID, new TopicPartition("orders", 7)), id),
            100, 199, 1_700_000_000_123L, 3, 1_700_000_001_000L, size,
            Optional.of(new CustomMetadata(new byte[] {9, 8, 7})), RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            Map.of(3, 100L, 5, 150L));
    }

    static byte[] random(int size, long seed) {
        byte[] bytes = new byte[size];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }

    /** Files with the log, and 800, 1200, 60 and (if wanted) 34 bytes of index. */
    static LogSegmentData files(Path folder, byte[] log, boolean transactions) throws IOException {
        Files.createDirectories(folder);
        Path transactionIndex = folder.resolve("100.txnindex");
        if (transactions) {
            Files.write(transactionIndex, random(34, 4));
        }
        return new LogSegmentData(Files.write(folder.resolve("100.log"), log),
            Files.write(folder.resolve("100.index"), random(800, 1)),
            Files.write(folder.resolve("100.timeindex"), random(1200, 2)),
            transactions ? Optional.of(transactionIndex) : Optional.empty(),
            Files.write(folder.resolve("100.snapshot"), random(60, 3)), ByteBuffer.wrap(EPOCHS));
    }
}
