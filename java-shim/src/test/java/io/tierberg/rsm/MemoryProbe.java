package io.tierberg.rsm;

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
        int port = Integer.parseInt(arguments[1]);
        ExecutorService threads = Executors.newFixedThreadPool(CALLS);
        try (TierbergRemoteStorageManager manager = Shim.connect(port)) {
            LogSegmentData data = Shim.files(Path.of(arguments[2], "segment"), Shim.random(24_000_000, 1), true);
            Callable<Void> call = arguments[0].equals("copy") ? () -> {
                manager.copyLogSegmentData(Shim.segment(1), data);
                return null;
            } : () -> {
                try (InputStream in = manager.fetchLogSegment(Shim.segment(1), 0)) {
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
            List<Future<Void>> running = new ArrayList<>();
            for (int i = 0; i < CALLS; i++) {
                running.add(threads.submit(call));
            }
            long heap = 0;
            long direct = 0;
            int samples = 0;
            while (running.stream().anyMatch(future -> !future.isDone())) {
                direct = Math.max(direct, direct(manager.directBytes()));
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

    /** Netty allocates its chunks as buffers the JDK counts, or beside them; never count them twice. */
    private static long direct(long pool) {
        long counted = ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class).stream()
            .filter(buffers -> buffers.getName().equals("direct")).mapToLong(BufferPoolMXBean::getMemoryUsed).sum();
        return counted >= pool ? counted : counted + pool;
    }
}
