package io.tierberg.rsm;

import io.grpc.Status;
import io.tierberg.rsm.proto.CopyEnd;
import io.tierberg.rsm.proto.CopyRequest;
import io.tierberg.rsm.proto.CopyResponse;
import io.tierberg.rsm.proto.CopyStart;
import io.tierberg.rsm.proto.Heartbeat;
import io.tierberg.rsm.proto.IndexType;
import io.tierberg.rsm.proto.SegmentMetadata;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.TimeUnit;

/**
 * Sends one closed segment: start, the files beside the log, the log in frames, end; then waits for the result.
 *
 * <p>All files are opened by the constructor, because the broker may delete them at any moment. The broker's copier
 * thread sends a message only when gRPC has sent the one before, so one frame per copy is in memory. Everything the
 * bridge sends, and everything it takes, counts as a sign of life; but no copy outlasts two hours, because it holds one
 * of the broker's few copier threads.
 */
final class SegmentCopy implements AutoCloseable {
    /** The whole message fits one of gRPC's 1 MiB buffers. */
    static final int FRAME_BYTES = 1024 * 1024 - 64;
    /** The same with a file's type, position and size before the payload. */
    static final int FILE_PIECE_BYTES = FRAME_BYTES - 64;
    private static final int CUSTOM_METADATA_BYTES_MAX = 128;
    /** The stage in which the bridge has not taken the copy up yet. */
    private static final String WAITING = "waiting";
    private static final long END_WAIT_MS = 1_000;
    /** Whatever the bridge says meanwhile. A bridge ends a copy after half of it by itself. */
    private static final long RUN_MS_MAX = 7_200_000;

    private final ShimConfig config;
    private final long limitMs;
    private final Attempt attempt;
    private final List<FileChannel> open = new ArrayList<>();
    private final Queue<Object> head = new ArrayDeque<>();
    private final FileChannel log;
    private final long size;

    private long position;
    private boolean endSent;
    private boolean restarted;
    private long endNanos;
    private long lifeNanos;
    private long progressNanos;
    private Heartbeat lastHeartbeat = Heartbeat.getDefaultInstance();

    /**
     * Opens the files.
     *
     * @throws IOException when one cannot be opened; those already open are closed
     */
    SegmentCopy(ShimConfig config, SegmentMetadata segment, LogSegmentData data, Attempt attempt) throws IOException {
        this(config, segment, data, attempt, RUN_MS_MAX);
    }

    /** With a limit of its own for the whole copy. */
    SegmentCopy(ShimConfig config, SegmentMetadata segment, LogSegmentData data, Attempt attempt, long limitMs)
            throws IOException {
        this.config = config;
        this.attempt = attempt;
        this.limitMs = limitMs;
        attempt.step("opening the segment's files");
        try {
            log = open(data.logSegment());
            size = log.size();
            CopyStart.Builder start = CopyStart.newBuilder().setSegment(segment);
            if (config.peekLaterTxnIndexes()) {
                LaterTransactionIndexes later =
                    LaterTransactionIndexes.read(data.logSegment(), segment.getEndOffset());
                start.addAllLaterTransactionIndexes(later.files()).setLaterTransactionIndexesComplete(later.complete());
            }
            head.add(CopyRequest.newBuilder().setStart(start).build());
            // What reads need comes first: the producer snapshot is what a bridge may leave out.
            addFile(IndexType.OFFSET, data.offsetIndex());
            addFile(IndexType.TIMESTAMP, data.timeIndex());
            if (data.transactionIndex().isPresent()) {
                addFile(IndexType.TRANSACTION, data.transactionIndex().get());
            }
            addEpochs(data.leaderEpochIndex());
            addFile(IndexType.PRODUCER_SNAPSHOT, data.producerSnapshotIndex());
        } catch (Throwable e) {
            close();
            throw e;
        }
    }

    private FileChannel open(Path path) throws IOException {
        FileChannel channel = FileChannel.open(path, StandardOpenOption.READ);
        open.add(channel);
        return channel;
    }

    private void addFile(IndexType type, Path path) throws IOException {
        FileChannel channel = open(path);
        long size = channel.size();
        long position = 0;
        do {
            int length = (int) Math.min(FILE_PIECE_BYTES, size - position);
            head.add(FileSlice.index(type, channel, position, length, size));
            position += length;
        } while (position < size);
    }

    private void addEpochs(ByteBuffer checkpoint) {
        int position = 0;
        do {
            int end = Math.min(checkpoint.remaining(), position + FILE_PIECE_BYTES);
            head.add(FileSlice.index(IndexType.LEADER_EPOCH, checkpoint, position, end));
            position = end;
        } while (position < checkpoint.remaining());
    }

    /**
     * Runs the copy to its end.
     *
     * @return the custom metadata of the stored segment, 1 to 128 bytes
     */
    byte[] run(BridgeCall<Object, CopyResponse> call) throws BridgeCall.Failure, InterruptedException {
        attempt.step("waiting for the bridge to take the segment");
        lifeNanos = System.nanoTime();
        progressNanos = lifeNanos;
        endNanos = lifeNanos + TimeUnit.MILLISECONDS.toNanos(limitMs);
        send(call);
        while (true) {
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            if (System.nanoTime() - endNanos >= 0) {
                throw standstill("has no result after " + limitMs + " ms");
            }
            CopyResponse answer = call.poll();
            if (answer != null) {
                if (answer.hasResult()) {
                    return finish(call, answer);
                }
                call.requestOne();
                take(answer);
            } else if (call.ended()) {
                throw new BridgeCall.Failure(Status.Code.INTERNAL, null, "the bridge ended the call without a result",
                    null);
            } else if (!endSent && call.isReady()) {
                send(call);
            } else {
                await(call);
            }
        }
    }

    private void await(BridgeCall<Object, CopyResponse> call) throws BridgeCall.Failure, InterruptedException {
        long life = lifeNanos + TimeUnit.MILLISECONDS.toNanos(config.copyStallTimeoutMs()) - System.nanoTime();
        long progress = progressNanos + TimeUnit.MILLISECONDS.toNanos(config.copyProgressTimeoutMs())
            - System.nanoTime();
        if (progress <= 0) {
            throw standstill("got no further for " + config.copyProgressTimeoutMs() + " ms");
        }
        progress = Math.min(progress, endNanos - System.nanoTime());
        if (!call.await(!endSent, Math.min(life, progress)) && life <= progress) {
            throw new BridgeCall.Failure(Status.Code.DEADLINE_EXCEEDED, "deadline", "no sign of life from the bridge for "
                + config.copyStallTimeoutMs() + " ms", null);
        }
    }

    private BridgeCall.Failure standstill(String what) {
        return new BridgeCall.Failure(Status.Code.ABORTED, "deadline", "the bridge is alive but " + what + " ("
            + lastHeartbeat.getStage() + ", " + lastHeartbeat.getReceivedBytes() + " bytes received)", null);
    }

    private void send(BridgeCall<Object, CopyResponse> call) {
        if (!head.isEmpty()) {
            call.send(head.remove());
        } else if (position < size) {
            int length = (int) Math.min(FRAME_BYTES, size - position);
            attempt.step("sending bytes " + position + " to " + (position + length) + " of " + size);
            call.send(FileSlice.frame(log, position, length));
            position += length;
        } else {
            attempt.step("waiting for the bridge to store the segment");
            call.send(CopyRequest.newBuilder().setEnd(CopyEnd.newBuilder().setSizeBytes(size)).build());
            endSent = true;
        }
        lifeNanos = System.nanoTime();
        progressNanos = lifeNanos;
    }

    private void take(CopyResponse answer) throws BridgeCall.Failure {
        lifeNanos = System.nanoTime();
        if (answer.hasRestart()) {
            if (restarted) {
                throw new BridgeCall.Failure(Status.Code.INTERNAL, null, "the bridge asked for a second restart: "
                    + answer.getRestart().getReason(), null);
            }
            restarted = true;
            position = 0;
            endSent = false;
            progressNanos = lifeNanos;
        } else if (answer.hasHeartbeat()) {
            Heartbeat heartbeat = answer.getHeartbeat();
            // A copy in the queue stands still for as long as the copies before it take; the bridge bounds that wait.
            if (heartbeat.getStage().equals(WAITING)) {
                attempt.step("waiting for the bridge to take the segment, behind " + heartbeat.getCopiesAhead()
                    + " other copies");
                progressNanos = lifeNanos;
            } else if (!heartbeat.equals(lastHeartbeat)) {
                progressNanos = lifeNanos;
            }
            lastHeartbeat = heartbeat;
        }
    }

    private byte[] finish(BridgeCall<Object, CopyResponse> call, CopyResponse answer) throws BridgeCall.Failure {
        byte[] metadata = answer.getResult().getCustomMetadata().toByteArray();
        if (metadata.length < 1 || metadata.length > CUSTOM_METADATA_BYTES_MAX) {
            throw new BridgeCall.Failure(Status.Code.INTERNAL, null, "the bridge answered with " + metadata.length
                + " bytes of custom metadata, expected 1 to " + CUSTOM_METADATA_BYTES_MAX, null);
        }
        call.halfClose();
        try {
            // The segment is durable whatever happens now; the wait only lets the call end without a reset.
            call.await(false, TimeUnit.MILLISECONDS.toNanos(END_WAIT_MS));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return metadata;
    }

    /** Closes the files. */
    @Override
    public void close() {
        for (FileChannel channel : open) {
            try {
                channel.close();
            } catch (IOException e) {
                attempt.step("closing a file opened for reading");
            }
        }
    }
}
