package io.tierberg.interop;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * One segment to write, from a line {@code NAME key=value key=value …}. All keys have defaults.
 *
 * <ul>
 * <li>{@code seed} (0): everything random follows it
 * <li>{@code magic} (2): 0, 1 or 2, or several: {@code 0,1,2} draws one for each batch
 * <li>{@code codec} (none): none, gzip, snappy, lz4, zstd, or several; zstd needs magic 2
 * <li>{@code timestamps} (create): create; append (the broker's way: batch header rewritten, deltas kept); or both
 * <li>{@code kinds} (plain): plain, idempotent, transactional, marker, leader_change, snapshot, kraft, or several
 * <li>{@code batches} (10), {@code records} (20, at most, of one batch), {@code value} (200, most bytes)
 * <li>{@code base} (0): first offset
 * <li>{@code gaps} (false): offsets are left out between and inside batches
 * <li>{@code odd_timestamps} (true): -1, 0, out of order and the largest long among the timestamps
 * <li>{@code compacted} (false): the segment went through Kafka's log cleaner filter: records missing, empty batches,
 *     delete horizons
 * <li>{@code compressible} (true): values repeat themselves
 * </ul>
 */
record SegmentSpec(String name, long seed, List<String> magics, List<String> codecs, List<String> timestamps,
                   List<String> kinds, int batches, int records, int valueBytes, long base, boolean gaps,
                   boolean oddTimestamps, boolean compacted, boolean compressible) {

    static SegmentSpec parse(String line) {
        String[] words = line.trim().split("\\s+");
        Map<String, String> values = new HashMap<>();
        for (int i = 1; i < words.length; i++) {
            int equals = words[i].indexOf('=');
            values.put(words[i].substring(0, equals), words[i].substring(equals + 1));
        }
        SegmentSpec spec = new SegmentSpec(words[0], number(values, "seed", 0), list(values, "magic", "2"),
            list(values, "codec", "none"), list(values, "timestamps", "create"), list(values, "kinds", "plain"),
            (int) number(values, "batches", 10), (int) number(values, "records", 20),
            (int) number(values, "value", 200), number(values, "base", 0), flag(values, "gaps", false),
            flag(values, "odd_timestamps", true), flag(values, "compacted", false),
            flag(values, "compressible", true));
        if (!values.isEmpty()) {
            throw new IllegalArgumentException("unknown keys " + values.keySet());
        }
        return spec;
    }

    private static long number(Map<String, String> values, String key, long otherwise) {
        String value = values.remove(key);
        return value == null ? otherwise : Long.parseLong(value);
    }

    private static boolean flag(Map<String, String> values, String key, boolean otherwise) {
        String value = values.remove(key);
        return value == null ? otherwise : Boolean.parseBoolean(value);
    }

    private static List<String> list(Map<String, String> values, String key, String otherwise) {
        String value = values.remove(key);
        return List.of((value == null ? otherwise : value).split(","));
    }
}
