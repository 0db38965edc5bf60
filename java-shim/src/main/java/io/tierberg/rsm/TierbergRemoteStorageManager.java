package io.tierberg.rsm;

import com.google.protobuf.ByteString;
import com.google.protobuf.MessageLite;
import io.grpc.CallOptions;
import io.grpc.MethodDescriptor;
import io.tierberg.rsm.proto.CopyResponse;
import io.tierberg.rsm.proto.DeleteSegmentRequest;
import io.tierberg.rsm.proto.DeleteSegmentResponse;
import io.tierberg.rsm.proto.FetchIndexRequest;
import io.tierberg.rsm.proto.FetchSegmentRequest;
import io.tierberg.rsm.proto.LeaderEpoch;
import io.tierberg.rsm.proto.SegmentMetadata;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.SequenceInputStream;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/**
 * Kafka's remote storage as a Tierberg bridge: every operation is one call to it (KIP-405, KIP-1003).
 *
 * <p>Parses nothing of what it carries. Every failure is a {@link RemoteStorageException} that names operation,
 * segment, step and cause. Safe for use by many threads.
 */
public final class TierbergRemoteStorageManager implements RemoteStorageManager {
    private static final Logger LOG = LoggerFactory.getLogger(TierbergRemoteStorageManager.class);
    /** A producer snapshot of 140,000 producer ids. */
    private static final int BUFFERED_BYTES_MAX = 8 * 1024 * 1024;

    private final Bridges.Lookup lookup;
    private ShimConfig config;
    private Bridges bridges;
    private Patience patience;

    /** For Kafka, which calls {@link #configure} next. */
    public TierbergRemoteStorageManager() {
        this(InetAddress::getAllByName);
    }

    /** Asks {@code lookup} instead of the machine's name service. */
    TierbergRemoteStorageManager(Bridges.Lookup lookup) {
        this.lookup = lookup;
    }

    /**
     * Checks the settings ({@link ShimConfig#DEFINITION}). Does not need a bridge to be there.
     *
     * @throws ConfigException naming the key; it ends the broker
     */
    @Override
    public void configure(Map<String, ?> properties) {
        config = ShimConfig.parse(properties);
        patience = new Patience(config.rebuildTimeoutMs());
        try {
            bridges = new Bridges(config, lookup);
        } catch (IOException | GeneralSecurityException e) {
            throw new ConfigException("bridge.tls.*: " + e.getMessage());
        }
        String version = getClass().getPackage().getImplementationVersion();
        LOG.info("Tierberg plugin {}, protocol {}: bridge.target {}, cluster.name {}, {}",
            version == null ? "(not from its jar)" : version, BridgeMethods.PROTOCOL_VERSION, config.target(),
            config.clusterName(), bridges.security());
        bridges.inBackground("tierberg-warm-up", new WarmUp(bridges, this::describe, this::open));
    }

    /**
     * Copies one segment; returns when it is durable.
     *
     * @return what the bridge wants back with each later call
     */
    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data)
            throws RemoteStorageException {
        return guarded("copy", segment, attempt -> {
            try (SegmentCopy copy = new SegmentCopy(config, withEpochs(segment), data, attempt)) {
                attempt.step("connecting");
                Bridge bridge = bridges.forCopy(id(segment));
                attempt.at(bridge.name());
                return Optional.of(new CustomMetadata(run(copy, bridge)));
            }
        });
    }

    private byte[] run(SegmentCopy copy, Bridge bridge) throws BridgeCall.Failure, InterruptedException {
        try (BridgeCall<Object, CopyResponse> call =
                 BridgeCall.start(bridge.copy(), BridgeMethods.COPY, CallOptions.DEFAULT)) {
            byte[] metadata = copy.run(call);
            bridge.answered();
            return metadata;
        } catch (BridgeCall.Failure e) {
            bridges.failed(bridge, e);
            throw e;
        } finally {
            bridge.copyEnded();
        }
    }

    /** Record batches from the one that contains {@code startPosition} to the segment's end. */
    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int startPosition)
            throws RemoteStorageException {
        return guarded("fetch from " + startPosition, segment, attempt -> {
            FetchSegmentRequest.Builder request = FetchSegmentRequest.newBuilder();
            return fetch(segment, BridgeMethods.FETCH_SEGMENT, request.setSegment(describe(segment))
                .setStartPosition(checked(startPosition, 0)).build(), attempt);
        });
    }

    /** Record batches from the one that contains {@code startPosition} to {@code endPosition}, inclusive. */
    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int startPosition, int endPosition)
            throws RemoteStorageException {
        return guarded("fetch from " + startPosition + " to " + endPosition, segment, attempt -> {
            FetchSegmentRequest.Builder request = FetchSegmentRequest.newBuilder();
            return fetch(segment, BridgeMethods.FETCH_SEGMENT, request.setSegment(describe(segment))
                .setStartPosition(checked(startPosition, 0))
                .setEndPosition(checked(endPosition, startPosition)).build(), attempt);
        });
    }

    /**
     * One index file, whole. A TRANSACTION index that the segment never had is a RemoteResourceNotFoundException, which
     * Kafka takes for "no aborted transactions". LEADER_EPOCH and PRODUCER_SNAPSHOT are read {@linkplain Patience
     * patiently}.
     */
    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type) throws RemoteStorageException {
        return guarded("fetch of the " + type + " index", segment, attempt -> {
            FetchIndexRequest request = FetchIndexRequest.newBuilder().setSegment(describe(segment))
                .setType(io.tierberg.rsm.proto.IndexType.valueOf(type.name())).build();
            if (type == IndexType.TRANSACTION) {
                attempt.absenceIsAnAnswer();
            }
            if (type != IndexType.LEADER_EPOCH && type != IndexType.PRODUCER_SNAPSHOT) {
                return fetch(segment, BridgeMethods.FETCH_INDEX, request, attempt);
            }
            return patience.read(id(segment), attempt, leftMs -> bridges.ask(id(segment),
                Math.min(config.fetchFirstByteTimeoutMs(), leftMs), attempt, (bridge, timeoutMs) ->
                    buffered(open(bridge, BridgeMethods.FETCH_INDEX, request, timeoutMs, attempt), leftMs)));
        });
    }

    /** The stream, of which all or the first 8 MiB are here already: what fails before, another bridge is asked for. */
    private static InputStream buffered(FetchStream stream, int leftMs) throws Exception {
        try {
            InputStream head = new ByteArrayInputStream(stream.head(BUFFERED_BYTES_MAX, leftMs));
            return new SequenceInputStream(head, stream);
        } catch (Throwable e) {
            stream.close();
            throw e;
        }
    }

    /** Deletes a segment, or withdraws a copy that failed. Returns within {@code delete.timeout.ms}. */
    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) throws RemoteStorageException {
        guarded("delete", segment, attempt -> {
            DeleteSegmentRequest request = DeleteSegmentRequest.newBuilder().setSegment(describe(segment)).build();
            return bridges.ask(id(segment), config.deleteTimeoutMs(), attempt, (bridge, timeoutMs) -> {
                attempt.step("waiting for the bridge");
                delete(bridge, request, timeoutMs, attempt);
                return null;
            });
        });
    }

    private static void delete(Bridge bridge, DeleteSegmentRequest request, int timeoutMs, Attempt attempt)
            throws BridgeCall.Failure, InterruptedException {
        CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(timeoutMs, TimeUnit.MILLISECONDS);
        try (BridgeCall<DeleteSegmentRequest, DeleteSegmentResponse> call =
                 BridgeCall.start(bridge.control(), BridgeMethods.DELETE, options)) {
            call.requestOne();
            call.send(request);
            call.halfClose();
            while (call.next(timeoutMs) != null) {
                attempt.step("waiting for the end of the call");
            }
        }
    }

    /** Ends all calls; no thread is left. */
    @Override
    public void close() {
        if (bridges != null) {
            patience.close();
            bridges.close();
        }
    }

    /** Direct memory held by the plugin's buffer pool, in bytes. */
    long directBytes() {
        return bridges.directBytes();
    }

    private <Q extends MessageLite> InputStream fetch(RemoteLogSegmentMetadata segment,
            MethodDescriptor<Q, InputStream> method, Q request, Attempt attempt) throws Exception {
        return bridges.ask(id(segment), config.fetchFirstByteTimeoutMs(), attempt, (bridge, timeoutMs) ->
            open(bridge, method, request, timeoutMs, attempt));
    }

    private <Q extends MessageLite> FetchStream open(Bridge bridge, MethodDescriptor<Q, InputStream> method, Q request,
            int timeoutMs, Attempt attempt) throws Exception {
        attempt.step("connecting");
        BridgeCall<Q, InputStream> call = BridgeCall.start(bridge.fetch(), method, CallOptions.DEFAULT);
        FetchStream stream = new FetchStream(call, bridges, bridge, attempt, config.fetchFrameTimeoutMs());
        try {
            call.send(request);
            call.halfClose();
            stream.awaitFirst(timeoutMs);
            return stream;
        } catch (Throwable e) {
            stream.close();
            throw e;
        }
    }

    private <T> T guarded(String operation, RemoteLogSegmentMetadata segment, Action<T> action)
            throws RemoteStorageException {
        Attempt attempt = new Attempt(operation, segment);
        try {
            return action.run(attempt);
        } catch (Throwable e) {
            throw attempt.failure(e);
        }
    }

    private static int checked(int position, int least) {
        if (position < least) {
            throw new IllegalArgumentException("position " + position + " is below " + least);
        }
        return position;
    }

    /** Only a copy needs them: a segment may have lived through thousands. */
    private SegmentMetadata withEpochs(RemoteLogSegmentMetadata segment) {
        SegmentMetadata.Builder result = describe(segment).toBuilder();
        segment.segmentLeaderEpochs().forEach((epoch, start) ->
            result.addLeaderEpochs(LeaderEpoch.newBuilder().setEpoch(epoch).setStartOffset(start)));
        return result.build();
    }

    private SegmentMetadata describe(RemoteLogSegmentMetadata segment) {
        SegmentMetadata.Builder result = SegmentMetadata.newBuilder()
            .setClusterName(config.clusterName())
            .setTopic(segment.topicIdPartition().topic())
            .setTopicId(bytes(segment.topicIdPartition().topicId()))
            .setPartition(segment.topicIdPartition().partition())
            .setSegmentId(bytes(segment.remoteLogSegmentId().id()))
            .setStartOffset(segment.startOffset())
            .setEndOffset(segment.endOffset())
            .setMaxTimestampMs(segment.maxTimestampMs())
            .setBrokerId(segment.brokerId())
            .setEventTimestampMs(segment.eventTimestampMs())
            .setSegmentSizeBytes(segment.segmentSizeInBytes());
        segment.customMetadata().ifPresent(custom ->
            result.setCustomMetadata(ByteString.copyFrom(custom.value())));
        return result.build();
    }

    private static Uuid id(RemoteLogSegmentMetadata segment) {
        return segment.remoteLogSegmentId().id();
    }

    private static ByteString bytes(Uuid id) {
        return ByteString.copyFrom(ByteBuffer.allocate(16).putLong(id.getMostSignificantBits())
            .putLong(id.getLeastSignificantBits()).flip());
    }

    private interface Action<T> {
        T run(Attempt attempt) throws Exception;
    }
}
