package io.tierberg.rsm;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;

/** A bridge that was away and hangs now: its port takes connections, nobody speaks. Errors say what is, not what was. */
@Timeout(60)
class FrozenBridgeTest {
    private static final String[] SETTINGS = {"fetch.first.byte.timeout.ms", "1500", "delete.timeout.ms", "1500",
        "connect.timeout.ms", "1000", "copy.stall.timeout.ms", "1500"};

    @TempDir
    Path folder;

    private static String refused(TierbergRemoteStorageManager manager) {
        return assertThrows(RemoteStorageException.class,
            () -> manager.fetchLogSegment(Shim.segment(1, Uuid.randomUuid()), 0)).getMessage();
    }

    @Test
    void theErrorOfEachCallIsOfThatCall() throws Exception {
        int port;
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = free.getLocalPort();
        }
        try (TierbergRemoteStorageManager manager = Shim.connect(port, SETTINGS)) {
            assertTrue(refused(manager).contains("Connection refused"));
            assertTrue(refused(manager).contains("Connection refused"));
            try (ServerSocket frozen = new ServerSocket(port, 50, InetAddress.getLoopbackAddress())) {
                for (int i = 0; i < 3; i++) {
                    String message = refused(manager);
                    assertFalse(message.contains("refused"), message);
                    assertTrue(message.contains("no connection in 250 ms")
                        || message.contains("nothing from the bridge for"), message);
                }
                assertTrue(frozen.isBound());
                RemoteStorageException delete = assertThrows(RemoteStorageException.class,
                    () -> manager.deleteLogSegmentData(Shim.segment(1)));
                assertFalse(delete.getMessage().contains("refused"), delete.getMessage());
                RemoteStorageException copy = assertThrows(RemoteStorageException.class, () ->
                    manager.copyLogSegmentData(Shim.segment(9), Shim.files(folder, new byte[9], false)));
                assertFalse(copy.getMessage().contains("refused"), copy.getMessage());
            }
            String message = refused(manager);
            assertTrue(message.contains("Connection refused") || message.contains("reset"), message);
        }
    }
}
