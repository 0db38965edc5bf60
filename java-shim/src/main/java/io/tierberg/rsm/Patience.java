package io.tierberg.rsm;

import org.apache.kafka.common.Uuid;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * How long a read is repeated that Kafka must not lose: LEADER_EPOCH and PRODUCER_SNAPSHOT of a follower that rebuilds
 * its state. Kafka has emptied the follower's log by then; should the broker die before they succeed, or its partition
 * get a new leader, Kafka goes on with an epoch history that begins at the local log, and never mends it.
 *
 * <p>The thread that waits is Kafka's replica fetcher, with the lock of all its partitions held. So an outage is waited
 * for once, not by each partition in turn, and so is the trouble of one segment while others are read: a failure that
 * follows another within the limit and a minute is the same trouble. When the time is over each read fails at once, and
 * Kafka repeats it every second.
 */
final class Patience implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Patience.class);
    private static final long PAUSE_MS = 100;
    private static final long PAUSE_MS_MAX = 1_000;
    private static final long SAME_TROUBLE_MS = 60_000;
    private static final int SEGMENTS_MAX = 1_000;

    private final long limitNanos;
    private final Map<Uuid, Trouble> segments = new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Uuid, Trouble> eldest) {
            return size() > SEGMENTS_MAX;
        }
    };
    private Trouble outage;
    private boolean closed;

    /** Asks all bridges once, waiting no longer than {@code leftMs}, at least 1. */
    interface Read<T> {
        T ask(int leftMs) throws Exception;
    }

    /** Failures without a success between them, by the machine's monotonic clock. */
    private record Trouble(long first, long last) { }

    /** @param limitMs longest wait for one outage; 0: none */
    Patience(int limitMs) {
        limitNanos = TimeUnit.MILLISECONDS.toNanos(limitMs);
    }

    /**
     * Repeats the read while what it fails with may pass. The first time it may take as long as it takes, later no longer
     * than is left.
     *
     * @throws BridgeCall.Failure the last one, when the time is over, or another bridge's answer
     * @throws InterruptedException at once, when the thread is interrupted
     */
    <T> T read(Uuid segment, Attempt attempt, Read<T> read) throws Exception {
        int leftMs = Integer.MAX_VALUE;
        for (int times = 1;; times++) {
            try {
                T result = read.ask(leftMs);
                answered(segment);
                return result;
            } catch (BridgeCall.Failure e) {
                if (!e.mayPass()) {
                    answered(segment);
                    throw e;
                }
                leftMs = pause(segment, Math.min(PAUSE_MS * times, PAUSE_MS_MAX), attempt, e);
                if (leftMs == 0) {
                    throw e;
                }
                attempt.again(times + 1);
            }
        }
    }

    private synchronized void answered(Uuid segment) {
        segments.remove(segment);
        if (outage != null) {
            LOG.info("reads of a rebuild are answered again, after {} ms", millis(System.nanoTime() - outage.first()));
            outage = null;
        }
    }

    /** Pauses; how much time is left to ask again after it, in ms. */
    private synchronized int pause(Uuid segment, long pauseMs, Attempt attempt, BridgeCall.Failure failure)
            throws InterruptedException {
        long now = System.nanoTime();
        outage = later(outage, now);
        Trouble own = later(segments.get(segment), now);
        segments.put(segment, own);
        long end = now + limitNanos - Math.max(now - outage.first(), now - own.first());
        if (!closed && outage.first() == now && end - now > 0) {
            LOG.warn("{} is repeated for up to {} ms, because the follower's log is empty until it succeeds: {}",
                attempt.what(), millis(limitNanos), failure.getMessage());
        }
        long pause = Math.min(TimeUnit.MILLISECONDS.toNanos(pauseMs), end - now);
        for (long left = pause; !closed && left > 0; left = now + pause - System.nanoTime()) {
            TimeUnit.NANOSECONDS.timedWait(this, Math.max(1_000_000, left));
        }
        return closed ? 0 : (int) Math.max(0, millis(end - System.nanoTime()));
    }

    private Trouble later(Trouble trouble, long now) {
        boolean same = trouble != null
            && now - trouble.last() <= limitNanos + TimeUnit.MILLISECONDS.toNanos(SAME_TROUBLE_MS);
        return new Trouble(same ? trouble.first() : now, now);
    }

    private static long millis(long nanos) {
        return TimeUnit.NANOSECONDS.toMillis(nanos);
    }

    /** Ends all waits. */
    @Override
    public synchronized void close() {
        closed = true;
        notifyAll();
    }
}
