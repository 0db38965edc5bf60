package io.tierberg.rsm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** {@code dns:///name:port}: bridges at 127.0.0.1, .2 and .3 on one port, and a name service that the test scripts. */
@Timeout(60)
class DnsTest {
    private final List<FakeBridge> bridges = new ArrayList<>();
    private final List<AtomicInteger> asked = new ArrayList<>();
    private final AtomicInteger lookups = new AtomicInteger();
    private volatile List<String> addresses = List.of();
    private TierbergRemoteStorageManager manager;

    @BeforeEach
    void start() throws IOException {
        int port = 0;
        for (int i = 1; i <= 3; i++) {
            FakeBridge bridge = new FakeBridge(new InetSocketAddress("127.0.0." + i, port), null);
            port = bridge.port();
            AtomicInteger count = new AtomicInteger();
            bridge.fetch = (request, out) -> {
                count.incrementAndGet();
                FakeBridge.stream(new byte[100], 100, out, new AtomicInteger());
            };
            bridges.add(bridge);
            asked.add(count);
        }
    }

    @AfterEach
    void stop() {
        manager.close();
        bridges.forEach(FakeBridge::close);
    }

    private void connect(String... settings) {
        manager = Shim.configured(new TierbergRemoteStorageManager(this::look),
            "dns:///bridges.example:" + bridges.get(0).port(), settings);
    }

    private InetAddress[] look(String host) throws UnknownHostException {
        assertEquals("bridges.example", host);
        lookups.incrementAndGet();
        List<String> now = addresses;
        if (now.isEmpty()) {
            throw new UnknownHostException(host);
        }
        InetAddress[] found = new InetAddress[now.size()];
        for (int i = 0; i < found.length; i++) {
            found[i] = InetAddress.getByName(now.get(i));
        }
        return found;
    }

    /** Which bridges answer to sixty segments. */
    private TreeSet<Integer> used() throws Exception {
        asked.forEach(count -> count.set(0));
        for (int i = 0; i < 60; i++) {
            manager.fetchLogSegment(Shim.segment(1, Uuid.randomUuid()), 0).close();
        }
        TreeSet<Integer> used = new TreeSet<>();
        for (int i = 0; i < 3; i++) {
            if (asked.get(i).get() > 0) {
                used.add(i + 1);
            }
        }
        return used;
    }

    private void awaitUsed(Integer... expected) throws Exception {
        TreeSet<Integer> wanted = new TreeSet<>(Arrays.asList(expected));
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        for (TreeSet<Integer> used = used(); !used.equals(wanted); used = used()) {
            assertTrue(System.nanoTime() < end, "used " + used + ", expected " + wanted);
            Thread.sleep(50);
        }
    }

    @Test
    void everyAddressIsABridgeAndTheyMayChange() throws Exception {
        addresses = List.of("127.0.0.2", "127.0.0.1");
        connect("bridge.dns.interval.ms", "100");
        assertEquals(new TreeSet<>(List.of(1, 2)), used());
        addresses = List.of("127.0.0.3", "127.0.0.1", "127.0.0.2", "127.0.0.1");
        awaitUsed(1, 2, 3);
        addresses = List.of("127.0.0.2");
        awaitUsed(2);
    }

    @Test
    void aStreamOfABridgeThatLeftIsReadToItsEnd() throws Exception {
        addresses = List.of("127.0.0.1");
        bridges.get(0).fetch = (request, out) ->
            FakeBridge.stream(new byte[10_000_000], 200_000, out, new AtomicInteger());
        connect("bridge.dns.interval.ms", "100");
        try (InputStream in = manager.fetchLogSegment(Shim.segment(1), 0)) {
            in.readNBytes(1000);
            addresses = List.of("127.0.0.2");
            awaitUsed(2);
            assertEquals(9_999_000, in.readAllBytes().length);
        }
    }

    @Test
    void aFailedLookUpKeepsTheFormerAddresses() throws Exception {
        addresses = List.of("127.0.0.1", "127.0.0.2");
        connect("bridge.dns.interval.ms", "50");
        used();
        addresses = List.of();
        int before = lookups.get();
        while (lookups.get() < before + 3) {
            Thread.sleep(10);
        }
        assertEquals(new TreeSet<>(List.of(1, 2)), used());
    }

    @Test
    void aNameThatIsNotThereYetFailsCallsOnly() throws Exception {
        connect();
        long start = System.nanoTime();
        String message = assertThrows(RemoteStorageException.class,
            () -> manager.fetchLogSegment(Shim.segment(1), 0)).getMessage();
        assertTrue(message.contains("bridges.example:" + bridges.get(0).port() + " has no address"), message);
        assertTrue(message.contains("UnknownHostException"), message);
        assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(2));
        addresses = List.of("127.0.0.1");
        manager.fetchLogSegment(Shim.segment(1), 0).close();
    }

    /** All pods were replaced and the interval is far away: the failure itself asks for the new addresses. */
    @Test
    void aFailureLooksUpAgain() throws Exception {
        addresses = List.of("127.0.0.1");
        connect("bridge.dns.interval.ms", "3600000");
        manager.fetchLogSegment(Shim.segment(1), 0).close();
        Thread.sleep(1_100);
        bridges.get(0).close();
        addresses = List.of("127.0.0.3");
        int before = lookups.get();
        assertThrows(RemoteStorageException.class, () -> manager.fetchLogSegment(Shim.segment(1), 0));
        while (lookups.get() == before) {
            Thread.sleep(10);
        }
        Thread.sleep(100);
        awaitUsed(3);
        assertEquals(before + 1, lookups.get());
    }
}
