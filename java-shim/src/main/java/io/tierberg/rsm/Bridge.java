package io.tierberg.rsm;

import io.grpc.ConnectivityState;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import org.apache.kafka.common.Uuid;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;

/**
 * One bridge: three connections, so that a copy's megabytes never stand before a fetch, and whether it is known to be
 * down. Each connection is made by its first call.
 *
 * <p>A bridge is down when it cannot be reached or was silent. It is up again when a call is answered, or when a fresh
 * connection stands, which takes a word from the bridge's process: a stopped one accepts connections too.
 */
final class Bridge {
    private static final Logger LOG = LoggerFactory.getLogger(Bridge.class);
    private static final long RECONNECT_WAIT_MS = 250;
    private static final long RECONNECT_POLL_MS = 5;
    private static final long SKIP_MS_MAX = 30_000;

    private final String name;
    private final long nameHash;
    private final int connectTimeoutMs;
    private final Supplier<String> security;
    private final ManagedChannel copy;
    private final ManagedChannel fetch;
    private final ManagedChannel control;
    private final AtomicInteger copies = new AtomicInteger();
    private boolean down;
    private boolean probed;
    private int failuresInARow;
    private long retryNanos;

    /**
     * Opens nothing yet.
     *
     * @param name its address, by which segments are spread: the same on every broker
     * @param security says how TLS is set up now; null: there is none
     * @param channels makes one channel to it
     */
    Bridge(String name, int connectTimeoutMs, Supplier<String> security, Supplier<ManagedChannel> channels) {
        this.name = name;
        this.connectTimeoutMs = connectTimeoutMs;
        this.security = security;
        long hash = 0xcbf29ce484222325L;
        for (byte b : name.getBytes(StandardCharsets.UTF_8)) {
            hash = (hash ^ b & 0xff) * 0x100000001b3L;
        }
        nameHash = hash;
        copy = channels.get();
        fetch = channels.get();
        control = channels.get();
    }

    /** Its address. */
    String name() {
        return name;
    }

    /** Rendezvous hashing (Thaler, Ravishankar 1998): of all bridges the one with the highest weight has the segment. */
    long weight(Uuid segment) {
        return mixed(mixed(nameHash ^ segment.getMostSignificantBits()) ^ segment.getLeastSignificantBits());
    }

    /** The finalizer of MurmurHash3: every bit of the input moves every bit of the result. */
    private static long mixed(long bits) {
        long x = (bits ^ bits >>> 33) * 0xff51afd7ed558ccdL;
        x = (x ^ x >>> 33) * 0xc4ceb9fe1a85ec53L;
        return x ^ x >>> 33;
    }

    /** For copies. */
    ManagedChannel copy() throws BridgeCall.Failure, InterruptedException {
        return awake(copy);
    }

    /** For fetches of segments and indexes. */
    ManagedChannel fetch() throws BridgeCall.Failure, InterruptedException {
        return awake(fetch);
    }

    /** For deletes. */
    ManagedChannel control() throws BridgeCall.Failure, InterruptedException {
        return awake(control);
    }

    /** Has all connections made, if they are not; waits for none. */
    void connect() {
        List.of(copy, fetch, control).forEach(channel -> channel.getState(true));
    }

    /**
     * gRPC's back-off between attempts reaches minutes; a call that waits is reason enough to try now. The call fails
     * at once when the bridge does not come back in 250 ms.
     *
     * @throws BridgeCall.Failure when nothing was heard in that time; a connection that is refused fails the call
     */
    private static ManagedChannel awake(ManagedChannel channel) throws BridgeCall.Failure, InterruptedException {
        ConnectivityState now = channel.getState(true);
        if (now == ConnectivityState.READY || now == ConnectivityState.SHUTDOWN) {
            return channel;
        }
        synchronized (channel) {
            if (settled(channel) != ConnectivityState.TRANSIENT_FAILURE) {
                return channel;
            }
            // By way of idle: otherwise gRPC fails calls with the end of an older attempt while the new one hangs.
            channel.enterIdle();
            settled(channel);
        }
        if (connecting(channel, RECONNECT_WAIT_MS)) {
            throw new BridgeCall.Failure(Status.Code.UNAVAILABLE, null, "no connection in " + RECONNECT_WAIT_MS
                + " ms", null);
        }
        return channel;
    }

    /**
     * The state after all that has happened: gRPC fails the calls of an attempt before its state says so, and a thread
     * that asks in between would be given the end of that attempt for its own.
     */
    private static ConnectivityState settled(ManagedChannel channel) throws InterruptedException {
        CountDownLatch told = new CountDownLatch(1);
        // Of any state but this one it tells at once, behind what the channel has still to do.
        channel.notifyWhenStateChanged(ConnectivityState.SHUTDOWN, told::countDown);
        told.await(RECONNECT_WAIT_MS, TimeUnit.MILLISECONDS);
        return channel.getState(true);
    }

    /** Has it connect, and waits for the end of that; true when there was none in time. */
    private static boolean connecting(ManagedChannel channel, long timeoutMs) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
        ConnectivityState state = channel.getState(true);
        while ((state == ConnectivityState.IDLE || state == ConnectivityState.CONNECTING)
                && System.nanoTime() < deadline) {
            Thread.sleep(RECONNECT_POLL_MS);
            state = channel.getState(true);
        }
        return state == ConnectivityState.IDLE || state == ConnectivityState.CONNECTING;
    }

    /** Copies that run here now. */
    int copies() {
        return copies.get();
    }

    /**
     * Takes a copy on if there is a connection for it, so that a bridge that is away costs a copy nothing: not a byte
     * of it has been sent.
     *
     * @param certain whether to take it on without a look: the copy's own failure then says why
     * @return whether it was taken on; {@link #copyEnded} follows
     */
    boolean takesCopy(boolean certain) throws InterruptedException {
        copies.incrementAndGet();
        boolean taken = false;
        try {
            taken = certain || connects();
        } finally {
            if (!taken) {
                copies.decrementAndGet();
            }
        }
        if (taken) {
            return true;
        }
        failed(new BridgeCall.Failure(Status.Code.UNAVAILABLE, null, "no connection for a copy", null));
        return false;
    }

    void copyEnded() {
        copies.decrementAndGet();
    }

    private boolean connects() throws InterruptedException {
        try {
            connecting(awake(copy), connectTimeoutMs);
        } catch (BridgeCall.Failure e) {
            return false;
        }
        return copy.getState(false) == ConnectivityState.READY;
    }

    /**
     * Whether calls should come here. While it is down, the first to ask after a pause has it try a fresh connection;
     * nobody waits for that.
     */
    synchronized boolean up() {
        if (!down) {
            return true;
        }
        if (probed && control.getState(false) == ConnectivityState.READY) {
            noteUp();
            return true;
        }
        if (System.nanoTime() - retryNanos >= 0) {
            probed = true;
            retryNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(connectTimeoutMs);
            // Away with an attempt that hangs, and with gRPC's back-off.
            control.enterIdle();
            control.getState(true);
        }
        return false;
    }

    /** Notes that a call was answered. */
    synchronized void answered() {
        failuresInARow = 0;
        if (down) {
            noteUp();
        }
    }

    private void noteUp() {
        down = false;
        LOG.info("bridge {} answers again", name);
    }

    /**
     * Notes that a call failed. An outage is logged once; after a silence the next call gets a fresh connection,
     * because a connection whose other end vanished looks alive for many minutes.
     *
     * @return whether the bridge is away, rather than its answer an error
     */
    boolean failed(BridgeCall.Failure failure) {
        if (!failure.unanswered()) {
            return false;
        }
        if (failure.code() == Status.Code.DEADLINE_EXCEEDED) {
            List.of(copy, fetch, control).forEach(ManagedChannel::enterIdle);
        }
        synchronized (this) {
            if (!down) {
                down = true;
                probed = false;
                long pause = Math.min((long) connectTimeoutMs << Math.min(failuresInARow++, 10), SKIP_MS_MAX);
                retryNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(pause);
                LOG.warn("bridge {} does not answer: {}{}", name,
                    failure.getMessage().lines().findFirst().orElse(""), doubt(failure));
            }
        }
        return true;
    }

    /** A bridge that refuses a certificate closes the connection, and gRPC only knows that it is closed. */
    private String doubt(BridgeCall.Failure failure) {
        String said = failure.getMessage();
        boolean known = said.contains("refused") || said.contains("PKIX") || said.contains("SSLHandshake");
        return security == null || known || failure.code() != Status.Code.UNAVAILABLE ? ""
            : ". The connection is " + security.get() + ": a bridge that does not accept this certificate closes it, "
                + "and says why in its own log";
    }

    /** Takes no new calls; those that run go on. */
    void leave() {
        List.of(copy, fetch, control).forEach(ManagedChannel::shutdown);
    }

    /** Ends all calls. */
    void shutdownNow() {
        List.of(copy, fetch, control).forEach(ManagedChannel::shutdownNow);
    }

    /** Waits for the end of all calls until {@code deadlineNanos}; false when there are some left. */
    boolean ended(long deadlineNanos) throws InterruptedException {
        boolean ended = true;
        for (ManagedChannel channel : List.of(copy, fetch, control)) {
            ended &= channel.awaitTermination(deadlineNanos - System.nanoTime(), TimeUnit.NANOSECONDS);
        }
        return ended;
    }
}
