package io.tierberg.rsm;

import com.sun.management.OperatingSystemMXBean;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;

import java.io.InputStream;
import java.lang.management.ManagementFactory;

/**
 * In a JVM of its own: configures a plugin, lets it warm up or ends that before it began, then reads an index and a
 * segment. Prints what that took, "milliseconds CPU-milliseconds" of the process, and the same for the tenth time.
 */
final class FirstFetchProbe {
    private static final OperatingSystemMXBean MACHINE =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private FirstFetchProbe() { }

    public static void main(String[] arguments) throws Exception {
        try (TierbergRemoteStorageManager manager = Shim.connect(arguments[0])) {
            warmUp(Boolean.parseBoolean(arguments[1]));
            StringBuilder line = new StringBuilder();
            for (int i = 1; i <= 10; i++) {
                long cpu = MACHINE.getProcessCpuTime();
                long start = System.nanoTime();
                Uuid segment = Uuid.randomUuid();
                manager.fetchIndex(Shim.segment(1, segment), IndexType.OFFSET).readAllBytes();
                try (InputStream in = manager.fetchLogSegment(Shim.segment(1, segment), 0, 1)) {
                    in.readNBytes(1 << 20);
                }
                if (i == 1 || i == 10) {
                    line.append((System.nanoTime() - start) / 1_000_000).append(' ')
                        .append((MACHINE.getProcessCpuTime() - cpu) / 1_000_000).append(' ');
                }
            }
            System.out.println(line.toString().trim());
        }
    }

    private static void warmUp(boolean wanted) throws InterruptedException {
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            if (thread.getName().equals("tierberg-warm-up")) {
                if (!wanted) {
                    thread.interrupt();
                }
                thread.join();
            }
        }
    }
}
