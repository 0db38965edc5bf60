package io.tierberg.rsm;

import org.apache.kafka.common.config.ConfigException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.TreeSet;

/**
 * Settings that nobody reads: typing errors. A warning names the nearest known key; one that asks for security is an
 * error, because the broker would go on in plaintext or with less than was asked for.
 */
final class UnknownKeys {
    private static final Logger LOG = LoggerFactory.getLogger(UnknownKeys.class);
    private static final String TLS = "bridge.tls.";
    /** What names of such settings have in them, here and elsewhere. */
    private static final List<String> ABOUT_TLS =
        List.of("tls", "ssl", "secur", "truststore", "keystore", "cert", "crypt", "https", "x509");
    /** Put there by Kafka. */
    private static final Set<String> KAFKAS = Set.of("broker.id");

    private UnknownKeys() { }

    /**
     * Looks at the names alone.
     *
     * @throws ConfigException naming a key that is about TLS, and the one that was probably meant
     */
    static void check(Set<String> given, Set<String> known) {
        for (String key : new TreeSet<>(given)) {
            if (known.contains(key) || KAFKAS.contains(key)) {
                continue;
            }
            String nearest = nearest(key, known);
            if (aboutTls(key) || nearest != null && nearest.startsWith(TLS)) {
                List<String> keys = known.stream().filter(each -> each.startsWith(TLS)).sorted().toList();
                throw new ConfigException(key + " is no setting of this plugin, and it asks for security that there would not be; "
                    + (nearest == null ? "" : "did you mean " + nearest + "? ") + "known are " + keys);
            }
            LOG.warn("{} is no setting of this plugin and is ignored{}", key,
                nearest == null ? "; known are " + new TreeSet<>(known) : "; did you mean " + nearest + "?");
        }
    }

    private static boolean aboutTls(String key) {
        String lower = key.toLowerCase(Locale.ROOT);
        return ABOUT_TLS.stream().anyMatch(lower::contains);
    }

    /** The known key that it ends, or with the fewest edits to it; null when that is over a third of its letters. */
    private static String nearest(String key, Set<String> known) {
        for (String each : known) {
            if (each.endsWith("." + key)) {
                return each;
            }
        }
        String least = known.stream().min(Comparator.<String>comparingInt(each -> edits(key, each))
            .thenComparing(Comparator.naturalOrder())).orElseThrow();
        return edits(key, least) <= Math.max(2, least.length() / 3) ? least : null;
    }

    /** Letters to insert, delete or replace (Levenshtein 1965). */
    private static int edits(String from, String to) {
        int[] row = new int[to.length() + 1];
        for (int j = 0; j <= to.length(); j++) {
            row[j] = j;
        }
        for (int i = 1; i <= from.length(); i++) {
            int diagonal = row[0];
            row[0] = i;
            for (int j = 1; j <= to.length(); j++) {
                int replaced = diagonal + (from.charAt(i - 1) == to.charAt(j - 1) ? 0 : 1);
                diagonal = row[j];
                row[j] = Math.min(replaced, Math.min(row[j], row[j - 1]) + 1);
            }
        }
        return row[to.length()];
    }
}
