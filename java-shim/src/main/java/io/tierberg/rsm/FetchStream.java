package io.tierberg.rsm;

import io.grpc.Status;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.Objects;
import java.util.concurrent.TimeUnit;

/**
 * The answer of a fetch as a stream. Holds the frame being read and asks for one more; what lies beyond stays with
 * the bridge by flow control. Bytes go from the received buffers straight into the reader's array. Not thread-safe.
 */
final class FetchStream extends InputStream {
    /** Field 1 of FetchChunk, length-delimited. */
    private static final int DATA_TAG = 1 << 3 | 2;

    private final BridgeCall<?, InputStream> call;
    private final Bridges bridges;
    private final Bridge bridge;
    private final Attempt attempt;
    private final int frameTimeoutMs;
    private InputStream frame = InputStream.nullInputStream();
    private boolean ended;
    private boolean closed;

    FetchStream(BridgeCall<?, InputStream> call, Bridges bridges, Bridge bridge, Attempt attempt, int frameTimeoutMs) {
        this.call = call;
        this.bridges = bridges;
        this.bridge = bridge;
        this.attempt = attempt;
        this.frameTimeoutMs = frameTimeoutMs;
    }

    /** Waits until the first bytes or the end are here. */
    void awaitFirst(int timeoutMs) throws BridgeCall.Failure, IOException, InterruptedException {
        attempt.step("waiting for the first bytes");
        advance(timeoutMs);
        attempt.step("reading");
    }

    /** {@link #head(int, int)} with the usual wait for each frame. */
    byte[] head(int most) throws BridgeCall.Failure, IOException, InterruptedException {
        return head(most, frameTimeoutMs);
    }

    /**
     * Reads on to the end, or to {@code most} bytes: for a caller who can still ask another bridge.
     *
     * @param waitMs longest wait for a frame, where that is less than the usual
     * @throws BridgeCall.Failure when the bridge fails; the stream is of no use then
     */
    byte[] head(int most, int waitMs) throws BridgeCall.Failure, IOException, InterruptedException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        while (bytes.size() < most && advance(Math.min(frameTimeoutMs, waitMs))) {
            bytes.writeBytes(frame.readNBytes(Math.min(most - bytes.size(), frame.available())));
        }
        return bytes.toByteArray();
    }

    /** Frames without a byte, however many, are no answer: the time is that for the next byte. */
    private boolean advance(int timeoutMs) throws BridgeCall.Failure, IOException, InterruptedException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
        while (!ended && frame.available() == 0) {
            frame.close();
            frame = InputStream.nullInputStream();
            InputStream next = call.next(timeoutMs, end);
            if (next == null) {
                ended = true;
            } else {
                // First, so that it is closed whatever happens: after the plugin's close() the request is refused.
                frame = next;
                call.requestOne();
                skipHeader(next);
            }
        }
        return !ended;
    }

    private static void skipHeader(InputStream message) throws BridgeCall.Failure, IOException {
        if (message.available() == 0) {
            return;
        }
        int tag = message.read();
        int length = 0;
        int shift = 0;
        int piece;
        do {
            piece = message.read();
            length |= (piece & 0x7f) << shift;
            shift += 7;
        } while (piece >= 0x80 && shift < 32);
        if (tag != DATA_TAG || piece < 0 || length != message.available()) {
            throw new BridgeCall.Failure(Status.Code.INTERNAL, null, "the bridge sent a frame of unknown form", null);
        }
    }

    @Override
    public int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    /**
     * Reads what is there, at least one byte.
     *
     * @throws IndexOutOfBoundsException when the range is not one of {@code target}; the stream stays as it is
     * @throws IOException naming segment, step and cause; after it the stream is closed
     */
    @Override
    public int read(byte[] target, int offset, int length) throws IOException {
        Objects.checkFromIndexSize(offset, length, target.length);
        if (closed) {
            throw new IOException("stream closed");
        }
        if (length == 0) {
            return 0;
        }
        try {
            return advance(frameTimeoutMs) ? frame.read(target, offset, length) : -1;
        } catch (BridgeCall.Failure | InterruptedException | RuntimeException e) {
            if (e instanceof BridgeCall.Failure failure) {
                bridges.failed(bridge, failure);
            }
            close();
            throw attempt.readFailure(e);
        }
    }

    /** Bytes of the present frame that are not read yet. */
    @Override
    public int available() throws IOException {
        return closed ? 0 : frame.available();
    }

    /** Cancels the call unless all of it was read, and frees its buffers. */
    @Override
    public void close() throws IOException {
        if (!closed) {
            closed = true;
            frame.close();
            call.close();
        }
    }
}
