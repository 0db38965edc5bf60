package io.tierberg.rsm;

import io.tierberg.rsm.proto.DeleteSegmentResponse;
import org.apache.kafka.common.Uuid;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;

/** Several bridges that write down who asked them for what. Each serves a few bytes until told otherwise. */
final class Fakes implements AutoCloseable {
    final List<FakeBridge> list = new ArrayList<>();
    /** Segment ids as they were asked, by the bridge's number. */
    final Map<Integer, ConcurrentLinkedQueue<Uuid>> fetched = new ConcurrentHashMap<>();
    final Map<Integer, ConcurrentLinkedQueue<Uuid>> deleted = new ConcurrentHashMap<>();

    Fakes(int count) throws IOException {
        for (int i = 0; i < count; i++) {
            list.add(new FakeBridge());
            serve(i, new byte[1000]);
        }
    }

    /** From now on, bridge {@code number} serves these bytes and accepts deletes. */
    void serve(int number, byte[] bytes) {
        FakeBridge bridge = list.get(number);
        ConcurrentLinkedQueue<Uuid> fetches = fetched.computeIfAbsent(number, n -> new ConcurrentLinkedQueue<>());
        ConcurrentLinkedQueue<Uuid> deletes = deleted.computeIfAbsent(number, n -> new ConcurrentLinkedQueue<>());
        bridge.fetch = (request, out) -> {
            fetches.add(id(request.getSegment().getSegmentId().asReadOnlyByteBuffer()));
            FakeBridge.stream(bytes, 200_000, out, new AtomicInteger());
        };
        bridge.index = (request, out) -> {
            fetches.add(id(request.getSegment().getSegmentId().asReadOnlyByteBuffer()));
            FakeBridge.stream(bytes, 200_000, out, new AtomicInteger());
        };
        bridge.delete = (request, out) -> {
            deletes.add(id(request.getSegment().getSegmentId().asReadOnlyByteBuffer()));
            out.onNext(DeleteSegmentResponse.getDefaultInstance());
            out.onCompleted();
        };
    }

    private static Uuid id(ByteBuffer bytes) {
        return new Uuid(bytes.getLong(), bytes.getLong());
    }

    /** What the shim is given. */
    String target() {
        return list.stream().map(FakeBridge::target).collect(Collectors.joining(","));
    }

    /** Numbers of the bridges in the segment's rendezvous order. */
    List<Integer> order(Uuid segment) {
        List<Bridge> bridges = list.stream().map(fake -> named(fake.target())).toList();
        return Bridges.ranked(segment, bridges).stream().map(bridges::indexOf).toList();
    }

    /** A segment whose rendezvous order begins so: it belongs to the first. */
    Uuid segmentOf(Integer... numbers) {
        Uuid segment = Uuid.randomUuid();
        while (!order(segment).subList(0, numbers.length).equals(List.of(numbers))) {
            segment = Uuid.randomUuid();
        }
        return segment;
    }

    int fetches(int number) {
        return fetched.get(number).size();
    }

    int deletes(int number) {
        return deleted.get(number).size();
    }

    @Override
    public void close() {
        list.forEach(FakeBridge::close);
    }

    /** A bridge that is only ranked, never called. */
    static Bridge named(String name) {
        return new Bridge(name, 1, null, () -> null);
    }
}
