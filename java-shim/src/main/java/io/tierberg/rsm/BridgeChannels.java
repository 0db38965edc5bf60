package io.tierberg.rsm;

import io.grpc.ConnectivityState;
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
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.security.GeneralSecurityException;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Three connections to the bridge, so that a copy's megabytes never stand before a fetch: one event-loop thread, one
 * buffer pool and one thread for name look-ups serve them all.
 *
 * <p>Windows are fixed. 256 KiB keeps what the bridge sends beyond what a reader takes small; the bridge's answers to
 * copies and deletes are tiny.
 */
final class BridgeChannels implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(BridgeChannels.class);
    private static final int WINDOW_BYTES = 256 * 1024;
    private static final int MESSAGE_BYTES_MAX = 2 * 1024 * 1024;
    private static final long RECONNECT_WAIT_MS = 250;
    private static final long RECONNECT_POLL_MS = 5;
    private static final long CLOSE_WAIT_MS = 3_000;
    private static final int PAGE_BYTES = 8192;
    /** Chunks of 8 KiB << 8 = 2 MiB, each room for two copy frames. */
    private static final int CHUNK_ORDER = 8;

    private final PooledByteBufAllocator buffers =
        new PooledByteBufAllocator(true, 1, 1, PAGE_BYTES, CHUNK_ORDER, 0, 0, false);
    private final List<Thread> threads = new CopyOnWriteArrayList<>();
    private final EventLoop eventLoop;
    private final ExecutorService lookups;
    private final String target;
    private final ManagedChannel copy;
    private final ManagedChannel fetch;
    private final ManagedChannel control;
    private final AtomicReference<String> outage = new AtomicReference<>();

    /**
     * Opens nothing yet: each connection is made by its first call.
     *
     * @throws IOException or GeneralSecurityException when the TLS files cannot be used
     */
    BridgeChannels(ShimConfig config) throws IOException, GeneralSecurityException {
        target = config.host() + ":" + config.port();
        PemTls tls = config.tls() == null ? null : new PemTls(config.tls());
        // A loop without a group: a group reports its end on a global thread that idles for a second after it.
        eventLoop = new SingleThreadIoEventLoop(null, (ThreadFactory) task -> thread("tierberg-io", task),
            NioIoHandler.newFactory());
        lookups = Executors.newSingleThreadExecutor(task -> thread("tierberg-lookup", task));
        copy = open(config, tls);
        fetch = open(config, tls);
        control = open(config, tls);
    }

    private Thread thread(String name, Runnable task) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        threads.add(thread);
        return thread;
    }

    private ManagedChannel open(ShimConfig config, PemTls tls) throws IOException {
        NettyChannelBuilder builder = NettyChannelBuilder.forAddress(config.host(), config.port())
            .channelType(NioSocketChannel.class)
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
        return builder.negotiationType(NegotiationType.TLS).sslContext(tls.context()).build();
    }

    /** For copies; fails at once when the bridge is known to be away and does not come back in 250 ms. */
    ManagedChannel copy() throws InterruptedException {
        return awake(copy);
    }

    /** For fetches of segments and indexes. */
    ManagedChannel fetch() throws InterruptedException {
        return awake(fetch);
    }

    /** For deletes. */
    ManagedChannel control() throws InterruptedException {
        return awake(control);
    }

    /** gRPC's back-off between attempts reaches minutes; a call that waits is reason enough to try now. */
    private static ManagedChannel awake(ManagedChannel channel) throws InterruptedException {
        if (channel.getState(true) == ConnectivityState.TRANSIENT_FAILURE) {
            channel.resetConnectBackoff();
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(RECONNECT_WAIT_MS);
            while (channel.getState(false) != ConnectivityState.READY && System.nanoTime() < deadline) {
                Thread.sleep(RECONNECT_POLL_MS);
            }
        }
        return channel;
    }

    /** Notes that a call was answered: the bridge is there. */
    void answered() {
        if (outage.get() != null && outage.getAndSet(null) != null) {
            LOG.info("bridge {} answers again", target);
        }
    }

    /**
     * Notes that a call failed. An outage is logged once; after a silence the next call gets a fresh connection,
     * because a connection whose other end vanished looks alive for many minutes.
     */
    void failed(Throwable cause) {
        if (!(cause instanceof BridgeCall.Failure failure)) {
            return;
        }
        if (failure.code() == Status.Code.DEADLINE_EXCEEDED) {
            List.of(copy, fetch, control).forEach(ManagedChannel::enterIdle);
        } else if (failure.code() != Status.Code.UNAVAILABLE) {
            return;
        }
        String first = failure.getMessage().lines().findFirst().orElse("");
        if (outage.compareAndSet(null, first)) {
            LOG.warn("bridge {} does not answer: {}", target, first);
        }
    }

    /** Direct memory held by the pool, in bytes. */
    long directBytes() {
        return buffers.metric().usedDirectMemory();
    }

    /** Ends all calls and connections and waits until every thread of ours is gone. */
    @Override
    public void close() {
        List<ManagedChannel> channels = List.of(copy, fetch, control);
        channels.forEach(ManagedChannel::shutdownNow);
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(CLOSE_WAIT_MS);
        try {
            for (ManagedChannel channel : channels) {
                channel.awaitTermination(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
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
