package io.tierberg.rsm;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;

import java.io.Closeable;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;

/**
 * One gRPC call as a blocking conversation for one broker thread.
 *
 * <p>gRPC's callbacks only file what arrived; all work is done by the thread that waits. At most as many answers are
 * held as were requested. Checks the protocol version of the answer before its first message.
 *
 * @param <Q> request
 * @param <R> answer; closed when nobody takes it, if it can be
 */
final class BridgeCall<Q, R> implements AutoCloseable {
    private final ClientCall<Q, R> call;
    private final Deque<R> received = new ArrayDeque<>();
    private Failure refusal;
    private Status end;
    private Metadata trailers;
    private boolean closed;

    private BridgeCall(ClientCall<Q, R> call) {
        this.call = call;
    }

    /** Starts a call with the protocol header and asks for one answer. */
    static <Q, R> BridgeCall<Q, R> start(Channel channel, MethodDescriptor<Q, R> method, CallOptions options) {
        BridgeCall<Q, R> result = new BridgeCall<>(channel.newCall(method, options));
        Metadata headers = new Metadata();
        headers.put(BridgeMethods.PROTOCOL, BridgeMethods.PROTOCOL_VERSION);
        result.call.start(result.new Listener(), headers);
        result.call.request(1);
        return result;
    }

    /** Sends one message; it is buffered when the call is not {@linkplain #isReady ready}. */
    void send(Q message) {
        call.sendMessage(message);
    }

    void halfClose() {
        call.halfClose();
    }

    /** Allows one more answer to come. */
    void requestOne() {
        call.request(1);
    }

    /** Whether a message sent now goes out without being queued behind others. */
    boolean isReady() {
        return call.isReady();
    }

    /** The next answer that is already here, or null. */
    synchronized R poll() {
        return received.poll();
    }

    /**
     * Whether the call is over and all answers are taken.
     *
     * @throws Failure when it did not end well
     */
    synchronized boolean ended() throws Failure {
        if (refusal != null) {
            throw refusal;
        }
        if (end == null || !received.isEmpty()) {
            return false;
        }
        if (!end.isOk()) {
            throw failure(end, trailers);
        }
        return true;
    }

    /**
     * Waits until there is something to do.
     *
     * @param orReady whether being ready to send counts
     * @param nanos longest wait
     * @return false when the time is over
     */
    synchronized boolean await(boolean orReady, long nanos) throws InterruptedException {
        long deadline = System.nanoTime() + nanos;
        while (received.isEmpty() && end == null && refusal == null && !(orReady && call.isReady())) {
            long left = deadline - System.nanoTime();
            if (left <= 0) {
                return false;
            }
            TimeUnit.NANOSECONDS.timedWait(this, Math.max(left, 1_000_000));
        }
        return true;
    }

    /**
     * Waits for the next answer.
     *
     * @return null at the end of the call
     * @throws Failure when the call failed or {@code timeoutMs} passed
     */
    R next(long timeoutMs) throws Failure, InterruptedException {
        return next(timeoutMs, System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs));
    }

    /** The same, with an end that was set earlier: {@code timeoutMs} before {@code endNanos}. */
    R next(long timeoutMs, long endNanos) throws Failure, InterruptedException {
        long left = endNanos - System.nanoTime();
        if (left <= 0 || !await(false, left)) {
            throw new Failure(Status.Code.DEADLINE_EXCEEDED, "deadline", "nothing from the bridge for " + timeoutMs
                + " ms", null);
        }
        R answer = poll();
        if (answer == null && !ended()) {
            throw new IllegalStateException("an answer was taken by another thread");
        }
        return answer;
    }

    /**
     * Cancels the call unless it is over, and drops what nobody took. gRPC too holds what had come and was not asked for,
     * and a cancel frees it only while the connection stands: so it is asked for, and dropped by the listener.
     */
    @Override
    public void close() {
        boolean over;
        synchronized (this) {
            closed = true;
            over = end != null;
            received.forEach(BridgeCall::discard);
            received.clear();
        }
        if (!over) {
            call.cancel("closed by the broker", null);
            try {
                call.request(Integer.MAX_VALUE);
            } catch (RejectedExecutionException e) {
                // After the plugin's close() there is no thread for it; the whole pool goes then.
                return;
            }
        }
    }

    private static void discard(Object answer) {
        if (answer instanceof Closeable closeable) {
            try {
                closeable.close();
            } catch (IOException e) {
                throw new IllegalStateException("received buffers do no I/O", e);
            }
        }
    }

    static Failure failure(Status status, Metadata trailers) {
        String kind = trailers == null ? null : trailers.get(BridgeMethods.ERROR);
        IOException io = null;
        Throwable root = null;
        for (Throwable cause = status.getCause(); cause != null; cause = cause.getCause()) {
            root = cause;
            if (cause instanceof IOException found) {
                io = found;
            }
        }
        if (io != null && status.getCode() == Status.Code.CANCELLED) {
            return new Failure(Status.Code.CANCELLED, null, "reading the broker's file failed: " + describe(io), io);
        }
        String text = status.getDescription() == null ? "" : status.getDescription();
        if (io != null) {
            text += (text.isEmpty() ? "" : ": ") + describe(io);
        } else if (root != null) {
            text += (text.isEmpty() ? "" : ": ") + root;
        }
        return new Failure(status.getCode(), kind, text, null, kind != null);
    }

    private static String describe(IOException e) {
        return e.getMessage() == null ? e.getClass().getSimpleName() : e.getMessage();
    }

    private final class Listener extends ClientCall.Listener<R> {
        private boolean spoken;

        @Override
        public void onHeaders(Metadata headers) {
            spoken = true;
            String version = headers.get(BridgeMethods.PROTOCOL);
            if (!BridgeMethods.PROTOCOL_VERSION.equals(version)) {
                refuse("the plugin speaks protocol version " + BridgeMethods.PROTOCOL_VERSION
                    + ", the bridge answered with version " + (version == null ? "(none)" : version));
            }
        }

        @Override
        public void onMessage(R message) {
            synchronized (BridgeCall.this) {
                if (closed || refusal != null) {
                    discard(message);
                    return;
                }
                received.add(message);
                BridgeCall.this.notifyAll();
            }
        }

        @Override
        public void onReady() {
            synchronized (BridgeCall.this) {
                BridgeCall.this.notifyAll();
            }
        }

        @Override
        public void onClose(Status status, Metadata metadata) {
            if (status.isOk() && !spoken) {
                onHeaders(metadata);
            }
            synchronized (BridgeCall.this) {
                end = status;
                trailers = metadata;
                BridgeCall.this.notifyAll();
            }
        }

        private void refuse(String why) {
            synchronized (BridgeCall.this) {
                refusal = new Failure(Status.Code.FAILED_PRECONDITION, "protocol_mismatch", why, null);
                BridgeCall.this.notifyAll();
            }
            call.cancel(why, null);
        }
    }

    /** Why a call failed; holds no gRPC exception. */
    static final class Failure extends Exception {
        private static final long serialVersionUID = 1L;
        private final Status.Code code;
        private final String kind;
        private final boolean answer;

        /** A failure that was found here. */
        Failure(Status.Code code, String kind, String description, Throwable cause) {
            this(code, kind, description, cause, false);
        }

        private Failure(Status.Code code, String kind, String description, Throwable cause, boolean answer) {
            super(code + (kind == null ? "" : " (" + kind + ")") + ": " + description, cause);
            this.code = code;
            this.kind = kind;
            this.answer = answer;
        }

        /** Whether the bridge could not be reached or was silent; false for an error it answered with. */
        boolean unanswered() {
            return !answer && (code == Status.Code.UNAVAILABLE || code == Status.Code.DEADLINE_EXCEEDED);
        }

        /** Whether another bridge may do better with the same request. */
        boolean worthAnother() {
            // A server that stops cancels what still runs; a cancel of ours has the broker's I/O error as its cause.
            return code == Status.Code.UNAVAILABLE || code == Status.Code.DEADLINE_EXCEEDED
                || code == Status.Code.CANCELLED && getCause() == null;
        }

        /** Whether the same request may succeed later: nobody was there, or the bridge or its store could not now. */
        boolean mayPass() {
            return worthAnother() || code == Status.Code.RESOURCE_EXHAUSTED;
        }

        Status.Code code() {
            return code;
        }

        /** The bridge's word for it, or ours; null when there is none. */
        String kind() {
            return kind;
        }
    }
}
