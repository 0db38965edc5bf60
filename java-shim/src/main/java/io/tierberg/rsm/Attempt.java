package io.tierberg.rsm;

import io.grpc.Status;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

import java.io.IOException;
import java.io.InterruptedIOException;

/**
 * What is being done to which segment, so that a failure can say so. Turns every failure into the exceptions of
 * KIP-405; never into the retriable one, which Kafka logs at debug level and counts nowhere.
 */
final class Attempt {
    private final String what;
    private volatile String step = "preparing";
    private volatile String bridge = "";
    private volatile String before = "";
    private volatile String asked = "";
    private volatile boolean absenceIsAnAnswer;

    Attempt(String operation, RemoteLogSegmentMetadata segment) {
        this(operation + " of segment " + segment.remoteLogSegmentId().topicIdPartition() + " "
            + segment.remoteLogSegmentId().id() + " [" + segment.startOffset() + ", " + segment.endOffset() + "]");
    }

    /** Something that is done to no segment. */
    Attempt(String what) {
        this.what = what;
    }

    /** Names what is done from now on. */
    void step(String name) {
        step = name;
    }

    /** Names the bridge that is asked from now on. */
    void at(String address) {
        bridge = address;
    }

    /** Notes why the bridge asked last is not waited for any longer. */
    void movesOn(BridgeCall.Failure failure) {
        before += (before.isEmpty() ? " after " : ", ") + bridge + ": " + failure.getMessage();
    }

    /** Notes that all bridges are asked again, from the first. */
    void again(int times) {
        before = "";
        asked = ", asked " + times + " times";
    }

    /**
     * Kafka will conclude something from a {@link RemoteResourceNotFoundException}: only "the segment never had this
     * index" becomes one, and no deleted segment and no lost index.
     */
    void absenceIsAnAnswer() {
        absenceIsAnAnswer = true;
    }

    /** Operation and segment, for the log. */
    String what() {
        return what;
    }

    /**
     * The exception Kafka gets. An interrupt is restored.
     *
     * @return {@link RemoteResourceNotFoundException} when the bridge says NOT_FOUND, see {@link #absenceIsAnAnswer}
     */
    RemoteStorageException failure(Throwable cause) {
        String message = message(cause);
        if (cause instanceof BridgeCall.Failure failure && failure.code() == Status.Code.NOT_FOUND
                && (!absenceIsAnAnswer || BridgeMethods.NO_INDEX.equals(failure.kind()))) {
            return new RemoteResourceNotFoundException(message);
        }
        return new RemoteStorageException(message, exposable(cause));
    }

    /** The exception the reader of a stream gets. An interrupt is restored. */
    IOException readFailure(Throwable cause) {
        String message = message(cause);
        return cause instanceof InterruptedException ? new InterruptedIOException(message)
            : new IOException(message, exposable(cause));
    }

    private String message(Throwable cause) {
        String why;
        if (isInterrupt(cause)) {
            Thread.currentThread().interrupt();
            why = "interrupted";
        } else if (cause instanceof BridgeCall.Failure) {
            why = cause.getMessage() + (bridge.isEmpty() ? "" : " [bridge " + bridge + before + asked + "]");
        } else {
            why = cause.toString();
        }
        return what + " failed while " + step + ": " + why;
    }

    private static boolean isInterrupt(Throwable cause) {
        return cause instanceof InterruptedException
            || cause instanceof java.nio.channels.ClosedByInterruptException
            || cause instanceof BridgeCall.Failure && cause.getCause() instanceof java.nio.channels.ClosedByInterruptException;
    }

    /** Only classes the broker can load, and never one of gRPC. */
    private static Throwable exposable(Throwable cause) {
        Throwable shown = cause instanceof BridgeCall.Failure ? cause.getCause() : cause;
        for (Throwable t = shown; t != null; t = t.getCause()) {
            ClassLoader loader = t.getClass().getClassLoader();
            if (loader != null && loader == Attempt.class.getClassLoader()) {
                return null;
            }
        }
        return shown;
    }
}
