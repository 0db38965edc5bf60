package io.tierberg.rsm;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.UnknownHostException;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** {@code connect.timeout.ms} is what a bridge that cannot be reached costs, and not its default of 3 s. */
@Timeout(60)
class ConnectTimeoutTest {
    private static final String[] SETTINGS = {"connect.timeout.ms", "300", "delete.timeout.ms", "20000"};

    private static void failsInTime(TierbergRemoteStorageManager manager) {
        long start = System.nanoTime();
        RemoteStorageException e = assertThrows(RemoteStorageException.class,
            () -> manager.deleteLogSegmentData(Shim.segment(1)));
        long ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        assertTrue(ms >= 250 && ms < 2_900, ms + " ms: " + e.getMessage());
    }

    /** A queue of connections that is full answers nobody any more. */
    @Test
    void anAddressThatDoesNotAnswer() throws Exception {
        List<SocketChannel> filling = new ArrayList<>();
        try (ServerSocket full = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            for (int i = 0; i < 4; i++) {
                SocketChannel channel = SocketChannel.open();
                filling.add(channel);
                channel.configureBlocking(false);
                channel.connect(new InetSocketAddress(full.getInetAddress(), full.getLocalPort()));
            }
            try (TierbergRemoteStorageManager manager = Shim.connect(full.getLocalPort(), SETTINGS)) {
                failsInTime(manager);
            }
        } finally {
            for (SocketChannel channel : filling) {
                channel.close();
            }
        }
    }

    @Test
    void aNameServerThatDoesNotAnswer() throws Exception {
        CountDownLatch end = new CountDownLatch(1);
        Bridges.Lookup silent = host -> {
            try {
                end.await();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            throw new UnknownHostException(host);
        };
        try (TierbergRemoteStorageManager manager = Shim.configured(new TierbergRemoteStorageManager(silent),
                "dns:///bridges.example:1", SETTINGS)) {
            try {
                failsInTime(manager);
            } finally {
                end.countDown();
            }
        }
    }
}
