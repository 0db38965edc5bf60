package io.tierberg.rsm;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;

import java.io.InputStream;
import java.lang.management.BufferPoolMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * Runs ten copies or ten half-read fetches at once and prints the most heap (live, above what one call left) and
 * direct memory in bytes it saw meanwhile.
 */
final class MemoryProbe {
    private static final int CALLS = 10;

    private MemoryProbe() { }

    public static void main(String[] arguments) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(CALLS);
        // What is measured is memory: a loaded machine may need longer than five seconds for a JVM's first call.
        try (TierbergRemoteStorageManager manager = Shim.connect(arguments[1], "fetch.first.byte.timeout.ms", "60000",
            "fetch.frame.timeout.ms", "60000", "copy.stall.timeout.ms", "60000")) {
            LogSegmentData data = Shim.files(Path.of(arguments[2], "segment"), Shim.random(24_000_000, 1), true);
            Callable<Void> call = arguments[0].equals("copy") ? () -> {
                manager.copyLogSegmentData(Shim.segment(1, Uuid.randomUuid()), data);
                return null;
            } : () -> {
                try (InputStream in = manager.fetchLogSegment(Shim.segment(1, Uuid.randomUuid()), 0)) {
                    byte[] piece = new byte[8192];
                    for (int i = 0; i < 20; i++) {
                        in.readNBytes(piece, 0, piece.length);
                        Thread.sleep(100);
                    }
                    while (in.read(piece) >= 0) {
                        Thread.yield();
                    }
                }
                return null;
            };
            call.call();
            long idle = liveHeap();
            boolean pooled = counted() >= manager.directBytes();
            List<Future<Void>> running = new ArrayList<>();
            for (int i = 0; i < CALLS; i++) {
                running.add(threads.submit(call));
            }
            long heap = 0;
            long direct = 0;
            int samples = 0;
            while (running.stream().anyMatch(future -> !future.isDone())) {
                direct = Math.max(direct, pooled ? counted() : counted() + manager.directBytes());
                if (samples++ % 10 == 0) {
                    heap = Math.max(heap, liveHeap() - idle);
                }
                TimeUnit.MILLISECONDS.sleep(20);
            }
            for (Future<Void> future : running) {
                future.get();
            }
            System.out.println(heap + " " + direct);
        } finally {
            threads.shutdownNow();
        }
    }

    private static long liveHeap() {
        System.gc();
        return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
    }

    /**
     * Direct memory the JDK knows of. Netty allocates its chunks there or beside it: which, is found out while nothing
     * runs, or a chunk that is freed between two looks counts twice.
     */
    private static long counted() {
        return ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class).stream()
            .filter(buffers -> buffers.getName().equals("direct")).mapToLong(BufferPoolMXBean::getMemoryUsed).sum();
    }
}
