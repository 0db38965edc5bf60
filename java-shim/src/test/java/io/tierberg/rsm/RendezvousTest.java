package io.tierberg.rsm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.kafka.common.Uuid;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.IntStream;

/** Which bridge a segment belongs to, over many seeded segments and sets of bridges. */
class RendezvousTest {
    private static final int SEGMENTS = 3_000;

    private static List<Bridge> bridges(int count, Random random) {
        String[] forms = {"10.0.0.%d:7410", "tierberg-%d.tierberg.kafka.svc:7410", "[fd00::%x]:7410", "127.0.0.1:%d"};
        String form = forms[random.nextInt(forms.length)];
        return new ArrayList<>(IntStream.rangeClosed(1, count).mapToObj(n -> Fakes.named(form.formatted(n))).toList());
    }

    private static Uuid segment(Random random) {
        return new Uuid(random.nextLong(), random.nextLong());
    }

    private static List<String> names(List<Bridge> bridges) {
        return bridges.stream().map(Bridge::name).toList();
    }

    @Test
    void theOrderOfTheAddressesDoesNotMatter() {
        Random random = new Random(1);
        for (int round = 0; round < SEGMENTS; round++) {
            List<Bridge> bridges = bridges(1 + random.nextInt(12), random);
            Uuid segment = segment(random);
            List<Bridge> order = Bridges.ranked(segment, bridges);
            assertEquals(bridges.size(), Map.copyOf(index(order)).size(), "each bridge once");
            Collections.shuffle(bridges, random);
            assertEquals(order, Bridges.ranked(segment, bridges));
        }
    }

    private static Map<String, Integer> index(List<Bridge> order) {
        Map<String, Integer> result = new HashMap<>();
        order.forEach(bridge -> result.put(bridge.name(), order.indexOf(bridge)));
        return result;
    }

    @Test
    void aBridgeThatJoinsOrLeavesMovesOnlyItsOwnSegments() {
        Random random = new Random(2);
        for (int round = 0; round < SEGMENTS; round++) {
            List<Bridge> bridges = bridges(2 + random.nextInt(11), random);
            Uuid segment = segment(random);
            List<String> all = new ArrayList<>(names(Bridges.ranked(segment, bridges)));
            Bridge one = bridges.remove(random.nextInt(bridges.size()));
            all.remove(one.name());
            assertEquals(all, names(Bridges.ranked(segment, bridges)), "the others keep their order");
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {2, 3, 5, 8})
    void segmentsAreSpread(int count) {
        Random random = new Random(count);
        for (int round = 0; round < 8; round++) {
            List<Bridge> bridges = bridges(count, random);
            Map<List<String>, Integer> pairs = new HashMap<>();
            Map<String, Integer> firsts = new HashMap<>();
            for (int i = 0; i < SEGMENTS; i++) {
                List<String> order = names(Bridges.ranked(segment(random), bridges));
                firsts.merge(order.get(0), 1, Integer::sum);
                pairs.merge(order.subList(0, 2), 1, Integer::sum);
            }
            within(SEGMENTS / (double) count, firsts, count);
            // What a bridge that fails leaves is spread over all others, not given to one of them.
            within(SEGMENTS / (double) count / (count - 1), pairs, count * (count - 1));
        }
    }

    private static void within(double expected, Map<?, Integer> counts, int kinds) {
        assertEquals(kinds, counts.size());
        double five = 5 * Math.sqrt(expected);
        counts.forEach((what, seen) -> assertTrue(Math.abs(seen - expected) < five, what + ": " + seen + " of "
            + expected));
    }

    @Test
    void everyBrokerAndReleaseAgrees() {
        List<Bridge> bridges = List.of(Fakes.named("a:1"), Fakes.named("b:1"), Fakes.named("c:1"));
        StringBuilder seen = new StringBuilder();
        Random random = new Random(7);
        for (int i = 0; i < 16; i++) {
            seen.append(Bridges.ranked(segment(random), bridges).get(0).name().charAt(0));
        }
        assertEquals("cacbacbaccbcbcba", seen.toString(), "a new hash moves every segment to a bridge with a cold cache");
    }
}
