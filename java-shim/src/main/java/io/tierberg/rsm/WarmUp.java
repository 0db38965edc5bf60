package io.tierberg.rsm;

import com.google.protobuf.MessageLite;
import io.grpc.MethodDescriptor;
import io.tierberg.rsm.proto.CopyRequest;
import io.tierberg.rsm.proto.CopyStart;
import io.tierberg.rsm.proto.FetchIndexRequest;
import io.tierberg.rsm.proto.FetchSegmentRequest;
import io.tierberg.rsm.proto.IndexType;
import io.tierberg.rsm.proto.SegmentMetadata;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/**
 * Throw-away calls in the background, so that a consumer's first fetch does not pay for the classes of gRPC, the
 * connections and the handshakes: more than the 500 ms for which Kafka waits for a fetch ({@code
 * remote.fetch.max.wait.ms}).
 *
 * <p>A fetch with an empty request is answered by a bridge with zeros; nothing is read, logged or counted there. A
 * bridge that is away is tried again until it has answered, for ten minutes. Says nothing, marks no bridge as down.
 */
final class WarmUp implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger(WarmUp.class);
    private static final int ROUNDS = 3;
    private static final int BYTES_MAX = 1024 * 1024;
    private static final int CALL_MS_MAX = 5_000;
    private static final long PAUSE_MS = 500;
    private static final long PAUSE_MS_MAX = 15_000;
    private static final long LIMIT_MS = 600_000;

    private final Bridges bridges;
    private final Function<RemoteLogSegmentMetadata, SegmentMetadata> describe;
    private final Opener opener;
    private final Set<Bridge> warm = new HashSet<>();

    /** Opens a fetch, as for Kafka. */
    interface Opener {
        <Q extends MessageLite> FetchStream open(Bridge bridge, MethodDescriptor<Q, InputStream> method, Q request,
            int timeoutMs, Attempt attempt) throws Exception;
    }

    /** @param describe a segment as requests name it */
    WarmUp(Bridges bridges, Function<RemoteLogSegmentMetadata, SegmentMetadata> describe, Opener opener) {
        this.bridges = bridges;
        this.describe = describe;
        this.opener = opener;
    }

    /** Ends when every bridge has answered, after ten minutes, or when the thread is interrupted. */
    @Override
    public void run() {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LIMIT_MS);
        try {
            marshal();
            for (long pause = PAUSE_MS; !allAnswered() && System.nanoTime() < end;
                    pause = Math.min(2 * pause, PAUSE_MS_MAX)) {
                Thread.sleep(pause);
            }
        } catch (InterruptedException e) {
            LOG.debug("closed while warming up");
        } catch (IOException | RuntimeException | LinkageError e) {
            LOG.debug("warming up failed", e);
        }
    }

    private boolean allAnswered() throws InterruptedException {
        boolean all = true;
        for (Bridge bridge : bridges.known()) {
            all &= warm.contains(bridge) || answers(bridge) && warm.add(bridge);
        }
        return all && !warm.isEmpty();
    }

    private boolean answers(Bridge bridge) throws InterruptedException {
        try {
            bridge.connect();
            for (int i = 0; i < ROUNDS; i++) {
                read(bridge, BridgeMethods.FETCH_INDEX, FetchIndexRequest.getDefaultInstance());
                read(bridge, BridgeMethods.FETCH_SEGMENT, FetchSegmentRequest.getDefaultInstance());
            }
            return true;
        } catch (InterruptedException e) {
            throw e;
        } catch (Exception e) {
            LOG.debug("bridge {} did not answer while warming up", bridge.name(), e);
            return false;
        }
    }

    private <Q extends MessageLite> void read(Bridge bridge, MethodDescriptor<Q, InputStream> method, Q request)
            throws Exception {
        try (FetchStream stream = opener.open(bridge, method, request, CALL_MS_MAX, new Attempt("warming up"))) {
            stream.head(BYTES_MAX);
        }
    }

    /** Requests and the head of a copy, written to nowhere: as calls they would leave traces. */
    private void marshal() throws IOException {
        SegmentMetadata segment = describe.apply(new RemoteLogSegmentMetadata(
            new RemoteLogSegmentId(new TopicIdPartition(Uuid.ZERO_UUID, new TopicPartition("none", 0)), Uuid.ZERO_UUID),
            0, 0, 0, 0, 0, 1, Map.of(0, 0L)));
        drain(BridgeMethods.FETCH_SEGMENT.streamRequest(FetchSegmentRequest.newBuilder().setSegment(segment).build()));
        drain(BridgeMethods.FETCH_INDEX.streamRequest(FetchIndexRequest.newBuilder().setSegment(segment)
            .setType(IndexType.OFFSET).build()));
        drain(BridgeMethods.COPY.streamRequest(CopyRequest.newBuilder()
            .setStart(CopyStart.newBuilder().setSegment(segment)).build()));
        drain(BridgeMethods.COPY.streamRequest(FileSlice.index(IndexType.LEADER_EPOCH, ByteBuffer.allocate(1), 0, 1)));
    }

    private static void drain(InputStream message) throws IOException {
        try (message) {
            message.transferTo(OutputStream.nullOutputStream());
        }
    }
}
