package io.tierberg.rsm;

import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.netty.NegotiationType;
import io.grpc.netty.NettyChannelBuilder;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoop;
import io.netty.channel.SingleThreadIoEventLoop;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.handler.ssl.SslContext;
import io.tierberg.rsm.ShimConfig.Address;
import org.apache.kafka.common.Uuid;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.security.GeneralSecurityException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;

/**
 * All bridges, and which of them a call goes to. One event-loop thread, one buffer pool and one thread for name
 * look-ups serve them all.
 *
 * <p>A segment's fetches and its delete go to the bridge that rendezvous hashing gives it, on every broker the same,
 * so that a repeated fetch finds what the first one had decoded; where it fails, to the next in that order. A copy
 * goes to the bridge with the fewest copies of this broker, and stays there.
 *
 * <p>Windows are fixed. 256 KiB keeps what a bridge sends beyond what a reader takes small; the answers to copies and
 * deletes are tiny.
 */
final class Bridges implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Bridges.class);
    private static final int WINDOW_BYTES = 256 * 1024;
    private static final int MESSAGE_BYTES_MAX = 2 * 1024 * 1024;
    private static final long CLOSE_WAIT_MS = 3_000;
    private static final long LOOKUP_PAUSE_MS = 1_000;
    private static final int PAGE_BYTES = 8192;
    /** Chunks of 8 KiB << 8 = 2 MiB, each room for two copy frames. */
    private static final int CHUNK_ORDER = 8;

    private final PooledByteBufAllocator buffers =
        new PooledByteBufAllocator(true, 1, 1, PAGE_BYTES, CHUNK_ORDER, 0, 0, false);
    private final List<Thread> threads = new CopyOnWriteArrayList<>();
    private final ShimConfig config;
    private final Lookup lookup;
    private final SslContext tls;
    private final PemTls pem;
    private final String security;
    private final EventLoop eventLoop;
    private final ScheduledExecutorService lookups;
    private final AtomicBoolean lookingUp = new AtomicBoolean();
    private volatile Map<String, Bridge> members = new TreeMap<>();
    private volatile long lookedUpNanos;
    private final List<Bridge> leaving = new ArrayList<>();
    private Thread background;
    private String lookupFailure;
    private long lookupsDone;
    private boolean closed;

    /** Asks the name service. */
    interface Lookup {
        InetAddress[] addresses(String host) throws UnknownHostException;
    }

    /** What one bridge is asked. */
    interface Question<T> {
        T ask(Bridge bridge, int timeoutMs) throws Exception;
    }

    /**
     * Opens nothing yet: each connection is made by its first call.
     *
     * @throws IOException or GeneralSecurityException when the TLS files cannot be used
     */
    Bridges(ShimConfig config, Lookup lookup) throws IOException, GeneralSecurityException {
        this.config = config;
        this.lookup = lookup;
        pem = config.tls() == null ? null : new PemTls(config.tls());
        tls = pem == null ? null : pem.context();
        security = pem == null ? "plaintext, no TLS" : pem.describe();
        // A loop without a group: a group reports its end on a global thread that idles for a second after it.
        eventLoop = new SingleThreadIoEventLoop(null, (ThreadFactory) task -> thread("tierberg-io", task),
            NioIoHandler.newFactory());
        lookups = Executors.newSingleThreadScheduledExecutor(task -> thread("tierberg-lookup", task));
        if (config.target().dns()) {
            lookups.scheduleWithFixedDelay(this::lookUp, 0, config.dnsIntervalMs(), TimeUnit.MILLISECONDS);
        } else {
            for (Address address : config.target().addresses()) {
                members.put(address.toString(), new Bridge(address.toString(), config.connectTimeoutMs(), doubt(),
                    () -> open(NettyChannelBuilder.forAddress(address.host(), address.port()))));
            }
        }
    }

    /** How connections are secured now: certificates may have been renewed. */
    private Supplier<String> doubt() {
        return pem == null ? null : () -> {
            try {
                return pem.describe();
            } catch (IOException | GeneralSecurityException e) {
                return security;
            }
        };
    }

    private Thread thread(String name, Runnable task) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        threads.add(thread);
        return thread;
    }

    private ManagedChannel open(NettyChannelBuilder builder) {
        builder.channelType(NioSocketChannel.class)
            .eventLoopGroup(eventLoop)
            .withOption(ChannelOption.ALLOCATOR, buffers)
            .withOption(ChannelOption.CONNECT_TIMEOUT_MILLIS, config.connectTimeoutMs())
            .directExecutor()
            .offloadExecutor(lookups)
            .flowControlWindow(WINDOW_BYTES)
            .maxInboundMessageSize(MESSAGE_BYTES_MAX)
            .disableRetry()
            .disableServiceConfigLookUp()
            .proxyDetector(address -> null);
        if (tls == null) {
            return builder.negotiationType(NegotiationType.PLAINTEXT).build();
        }
        if (config.tls().serverName() != null) {
            builder.overrideAuthority(config.tls().serverName());
        }
        return builder.negotiationType(NegotiationType.TLS).sslContext(tls).build();
    }

    /**
     * Asks the segment's bridge, and when that one fails the next, those known to be down last. As long as there is a
     * next one, a bridge may be silent for {@code bridge.failover.percent} of the time.
     *
     * @throws BridgeCall.Failure what the last one said, within {@code timeoutMs}
     */
    <T> T ask(Uuid segment, int timeoutMs, Attempt attempt, Question<T> question) throws Exception {
        List<Bridge> order = order(segment);
        int share = Math.max(1, (int) ((long) timeoutMs * config.failoverPercent() / 100));
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
        int left = timeoutMs;
        for (int i = 0;; i++) {
            Bridge bridge = order.get(i);
            boolean last = i + 1 == order.size();
            boolean all = last || bridge.up() && !order.get(i + 1).up();
            attempt.at(bridge.name());
            try {
                T answer = question.ask(bridge, all ? left : Math.min(left, share));
                bridge.answered();
                return answer;
            } catch (BridgeCall.Failure e) {
                failed(bridge, e);
                left = (int) TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
                if (last || !e.worthAnother() || left <= 0) {
                    throw e;
                }
                attempt.movesOn(e);
            }
        }
    }

    /** The bridge for a copy; {@link Bridge#copyEnded} must follow. One that cannot be reached is passed over. */
    Bridge forCopy(Uuid segment) throws BridgeCall.Failure, InterruptedException {
        List<Bridge> left = order(segment);
        while (true) {
            Bridge bridge = leastBusy(left);
            if (bridge.takesCopy(left.size() == 1)) {
                return bridge;
            }
            left.remove(bridge);
        }
    }

    private static Bridge leastBusy(List<Bridge> order) {
        Bridge least = order.get(0);
        int fewest = Integer.MAX_VALUE;
        for (Bridge bridge : order) {
            int copies = bridge.copies();
            if (copies < fewest && bridge.up()) {
                least = bridge;
                fewest = copies;
            }
        }
        return least;
    }

    /** Notes that a call failed; where addresses come from a name, they may have changed. */
    void failed(Bridge bridge, BridgeCall.Failure failure) {
        if (bridge.failed(failure) && config.target().dns()
                && System.nanoTime() - lookedUpNanos > TimeUnit.MILLISECONDS.toNanos(LOOKUP_PAUSE_MS)) {
            lookAgain();
        }
    }

    /** At least one bridge: by the segment's weight, those that are down behind the others. */
    private List<Bridge> order(Uuid segment) throws BridgeCall.Failure, InterruptedException {
        Collection<Bridge> present = present();
        if (present.size() == 1) {
            return new ArrayList<>(present);
        }
        List<Bridge> order = new ArrayList<>();
        List<Bridge> down = new ArrayList<>();
        for (Bridge bridge : ranked(segment, present)) {
            (bridge.up() ? order : down).add(bridge);
        }
        order.addAll(down);
        return order;
    }

    /** The rendezvous order of a segment; it does not depend on the order of the bridges. */
    static List<Bridge> ranked(Uuid segment, Collection<Bridge> bridges) {
        List<Bridge> order = new ArrayList<>(bridges);
        order.sort(Comparator.<Bridge>comparingLong(bridge -> bridge.weight(segment)).reversed()
            .thenComparing(Bridge::name));
        return order;
    }

    /** All bridges; before the first look-up has succeeded, waits for one. */
    private Collection<Bridge> present() throws BridgeCall.Failure, InterruptedException {
        if (!members.isEmpty()) {
            return members.values();
        }
        synchronized (this) {
            long before = lookupsDone;
            lookAgain();
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(config.connectTimeoutMs());
            while (members.isEmpty() && lookupsDone == before && !closed && System.nanoTime() < deadline) {
                TimeUnit.NANOSECONDS.timedWait(this, Math.max(1_000_000, deadline - System.nanoTime()));
            }
            if (members.isEmpty()) {
                throw new BridgeCall.Failure(Status.Code.UNAVAILABLE, null, config.target().addresses().get(0)
                    + " has no address: " + (lookupFailure == null ? "no answer yet" : lookupFailure), null);
            }
            return members.values();
        }
    }

    /** The bridges known now; none before the first look-up. */
    Collection<Bridge> known() {
        return members.values();
    }

    /** Runs it on a thread of its own, which {@link #close} interrupts and waits for. */
    void inBackground(String name, Runnable task) {
        background = thread(name, task);
        background.start();
    }

    private void lookAgain() {
        if (lookingUp.compareAndSet(false, true)) {
            try {
                lookups.execute(this::lookUp);
            } catch (RejectedExecutionException e) {
                LOG.debug("no look-up after close()");
            }
        }
    }

    /** Makes the name's addresses the bridges; where that fails, they stay what they were. */
    private void lookUp() {
        Address name = config.target().addresses().get(0);
        String failure = null;
        try {
            InetAddress[] found = lookup.addresses(name.host());
            replaceMembers(found);
        } catch (UnknownHostException | RuntimeException e) {
            failure = e.toString();
        }
        lookedUpNanos = System.nanoTime();
        lookingUp.set(false);
        synchronized (this) {
            if (failure != null && lookupFailure == null) {
                LOG.warn("cannot look up {}, its addresses stay {}: {}", name, members.keySet(), failure);
            }
            lookupFailure = failure;
            lookupsDone++;
            notifyAll();
        }
    }

    private synchronized void replaceMembers(InetAddress[] found) throws UnknownHostException {
        if (closed) {
            return;
        }
        Address name = config.target().addresses().get(0);
        Map<String, Bridge> next = new TreeMap<>();
        for (InetAddress ip : found) {
            Address address = new Address(ip.getHostAddress(), name.port());
            Bridge known = members.get(address.toString());
            next.put(address.toString(), known != null ? known : new Bridge(address.toString(),
                config.connectTimeoutMs(), doubt(), () -> open(NettyChannelBuilder
                    .forAddress(new InetSocketAddress(ip, name.port())).overrideAuthority(name.toString()))));
        }
        if (next.isEmpty()) {
            throw new UnknownHostException(name + " has no address");
        }
        Map<String, Bridge> former = members;
        members = next;
        leaving.removeIf(Bridges::gone);
        former.forEach((address, bridge) -> {
            if (!next.containsKey(address)) {
                bridge.leave();
                leaving.add(bridge);
            }
        });
        if (!former.keySet().equals(next.keySet())) {
            LOG.info("bridges of {}: {}", name, next.keySet());
        }
    }

    private static boolean gone(Bridge bridge) {
        try {
            return bridge.ended(System.nanoTime());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    /** How connections are secured, for the log. */
    String security() {
        return security;
    }

    /** Direct memory held by the pool, in bytes. */
    long directBytes() {
        return buffers.metric().usedDirectMemory();
    }

    /** Ends all calls and connections and waits until every thread of ours is gone. */
    @Override
    public void close() {
        List<Bridge> all;
        synchronized (this) {
            closed = true;
            notifyAll();
            all = new ArrayList<>(members.values());
            all.addAll(leaving);
        }
        if (background != null) {
            background.interrupt();
        }
        all.forEach(Bridge::shutdownNow);
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(CLOSE_WAIT_MS);
        try {
            for (Bridge bridge : all) {
                bridge.ended(deadline);
            }
            stopThreads();
            for (Thread thread : threads) {
                thread.join(Math.max(1, TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime())));
            }
        } catch (InterruptedException e) {
            stopThreads();
            Thread.currentThread().interrupt();
        }
    }

    private void stopThreads() {
        lookups.shutdownNow();
        eventLoop.shutdownGracefully(0, CLOSE_WAIT_MS, TimeUnit.MILLISECONDS);
    }
}
