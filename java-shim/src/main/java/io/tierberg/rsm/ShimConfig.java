package io.tierberg.rsm;

import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigException;

/**
 * The plugin's settings, as they arrive after Kafka took {@code rsm.config.} off their names.
 *
 * @param target the bridges
 * @param clusterName name under which the bridge files this cluster's topics
 * @param tls PEM files, or null for plaintext
 * @param peekLaterTxnIndexes whether a copy also carries the transaction indexes of later segments
 * @param connectTimeoutMs longest TCP connect, and the pause before a bridge that is down is tried again
 * @param dnsIntervalMs time between two look-ups of a {@code dns:///} target
 * @param failoverPercent share of a deadline after which a silent bridge is left for the next
 * @param copyStallTimeoutMs longest time in a copy without a sign of life from the bridge
 * @param copyProgressTimeoutMs longest time in a copy in which heartbeats come but nothing in them changes
 * @param fetchFirstByteTimeoutMs longest wait for the first frame of a fetch
 * @param fetchFrameTimeoutMs longest wait for a further frame
 * @param deleteTimeoutMs deadline of a delete
 * @param rebuildTimeoutMs how long a rebuilding follower's reads go on while no bridge answers
 */
record ShimConfig(Target target, String clusterName, Tls tls, boolean peekLaterTxnIndexes, int connectTimeoutMs,
                  int dnsIntervalMs, int failoverPercent, int copyStallTimeoutMs, int copyProgressTimeoutMs,
                  int fetchFirstByteTimeoutMs, int fetchFrameTimeoutMs, int deleteTimeoutMs,
                  int rebuildTimeoutMs) {

    static final String TARGET = "bridge.target";
    static final String DNS_INTERVAL = "bridge.dns.interval.ms";
    static final String FAILOVER_PERCENT = "bridge.failover.percent";
    static final String CLUSTER_NAME = "cluster.name";
    static final String TLS_ENABLED = "bridge.tls.enabled";
    static final String TLS_CA = "bridge.tls.ca.file";
    static final String TLS_CERTIFICATE = "bridge.tls.certificate.file";
    static final String TLS_KEY = "bridge.tls.key.file";
    static final String TLS_SERVER_NAME = "bridge.tls.server.name";
    static final String PEEK_LATER_TXN_INDEXES = "peek.later.txn.indexes";
    static final String CONNECT_TIMEOUT = "connect.timeout.ms";
    static final String COPY_STALL_TIMEOUT = "copy.stall.timeout.ms";
    static final String COPY_PROGRESS_TIMEOUT = "copy.progress.timeout.ms";
    static final String FETCH_FIRST_BYTE_TIMEOUT = "fetch.first.byte.timeout.ms";
    static final String FETCH_FRAME_TIMEOUT = "fetch.frame.timeout.ms";
    static final String DELETE_TIMEOUT = "delete.timeout.ms";
    static final String REBUILD_TIMEOUT = "rebuild.timeout.ms";

    private static final String DNS = "dns:";
    private static final int BRIDGES_MAX = 64;
    private static final Range TIMEOUT = Range.between(1, 3_600_000);

    static final ConfigDef DEFINITION = new ConfigDef()
        .define(TARGET, Type.STRING, ConfigDef.NO_DEFAULT_VALUE, new ConfigDef.NonEmptyString(), Importance.HIGH,
            "The bridge, as host:port; several of them with commas between, in any order; or dns:///name:port: every "
                + "address of the name is a bridge.")
        .define(DNS_INTERVAL, Type.INT, 30_000, TIMEOUT, Importance.LOW,
            "How often the name of dns:///name:port is looked up again, in ms; also after failures.")
        .define(FAILOVER_PERCENT, Type.INT, 40, Range.between(1, 100), Importance.LOW,
            "With several bridges, the share of " + FETCH_FIRST_BYTE_TIMEOUT + " and " + DELETE_TIMEOUT
                + " for which one may be silent before the next is asked, in percent.")
        .define(CLUSTER_NAME, Type.STRING, ConfigDef.NO_DEFAULT_VALUE, new ConfigDef.NonEmptyString(),
            Importance.HIGH, "Name of this Kafka cluster; tables are stamped with it. Never change it.")
        .define(TLS_ENABLED, Type.BOOLEAN, false, Importance.HIGH, "Whether to speak TLS to the bridge.")
        .define(TLS_CA, Type.STRING, "", Importance.MEDIUM,
            "PEM file with the certificates that may sign the bridge's certificate. Re-read when it changes.")
        .define(TLS_CERTIFICATE, Type.STRING, "", Importance.MEDIUM,
            "PEM file with this broker's certificate chain (mTLS). Re-read when it changes.")
        .define(TLS_KEY, Type.STRING, "", Importance.MEDIUM,
            "PEM file with the unencrypted PKCS#8 key of the certificate. Re-read when it changes.")
        .define(TLS_SERVER_NAME, Type.STRING, "", Importance.LOW,
            "Name the bridge's certificate must carry, when it is not the host of " + TARGET + ".")
        .define(PEEK_LATER_TXN_INDEXES, Type.BOOLEAN, false, Importance.LOW,
            "Whether a copy also sends the transaction indexes of later segments that lie in the segment's folder.")
        .define(CONNECT_TIMEOUT, Type.INT, 3_000, TIMEOUT, Importance.LOW,
            "Longest TCP connect; also the pause before a bridge that is down is tried again, in ms.")
        .define(COPY_STALL_TIMEOUT, Type.INT, 30_000, TIMEOUT, Importance.LOW,
            "A copy fails after this time without a sign of life from the bridge, in ms.")
        .define(COPY_PROGRESS_TIMEOUT, Type.INT, 600_000, TIMEOUT, Importance.LOW,
            "A copy fails after this time in which the bridge is alive but gets no further, in ms.")
        .define(FETCH_FIRST_BYTE_TIMEOUT, Type.INT, 5_000, TIMEOUT, Importance.LOW,
            "Longest wait for the first bytes of a fetch, in ms.")
        .define(FETCH_FRAME_TIMEOUT, Type.INT, 5_000, TIMEOUT, Importance.LOW,
            "Longest wait between two frames of a fetch, in ms.")
        .define(DELETE_TIMEOUT, Type.INT, 2_000, TIMEOUT, Importance.LOW, "Deadline of a delete, in ms.")
        .define(REBUILD_TIMEOUT, Type.INT, 120_000, Range.between(0, 3_600_000), Importance.MEDIUM,
            "How long the reads of a follower that rebuilds its state from the remote store (LEADER_EPOCH, "
                + "PRODUCER_SNAPSHOT) are repeated while no bridge answers, in ms; once per outage.");

    /** Host, without brackets, and port of a bridge; the text is {@code host:port}, IPv6 in brackets. */
    record Address(String host, int port) {
        @Override
        public String toString() {
            return (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
        }
    }

    /**
     * Where the bridges are.
     *
     * @param dns whether {@code addresses} is one name, each address of which is a bridge
     * @param addresses at least one; without {@code dns} each is a bridge
     */
    record Target(boolean dns, List<Address> addresses) {
        @Override
        public String toString() {
            return (dns ? DNS + "///" : "")
                + addresses.stream().map(Address::toString).collect(Collectors.joining(","));
        }
    }

    /**
     * PEM files of a TLS connection.
     *
     * @param ca who may sign the bridge's certificate
     * @param certificate our certificate chain, or null without mTLS
     * @param key our key, or null without mTLS
     * @param serverName name to check in the bridge's certificate, or null for the target's host
     */
    record Tls(Path ca, Path certificate, Path key, String serverName) { }

    /**
     * Reads and checks the settings. Keys that are not ours are warned of ({@link UnknownKeys}).
     *
     * @throws ConfigException naming the key and what is wrong with it
     */
    static ShimConfig parse(Map<String, ?> properties) {
        UnknownKeys.check(properties.keySet(), DEFINITION.names());
        Map<String, Object> values = DEFINITION.parse(properties);
        values.forEach((key, value) -> {
            if (value == null) {
                throw new ConfigException(key, null, "has no value: give it one, or leave the key out");
            }
        });
        return new ShimConfig(target((String) values.get(TARGET)), (String) values.get(CLUSTER_NAME), tls(values),
            (boolean) values.get(PEEK_LATER_TXN_INDEXES), (int) values.get(CONNECT_TIMEOUT),
            (int) values.get(DNS_INTERVAL), (int) values.get(FAILOVER_PERCENT), (int) values.get(COPY_STALL_TIMEOUT),
            (int) values.get(COPY_PROGRESS_TIMEOUT), (int) values.get(FETCH_FIRST_BYTE_TIMEOUT),
            (int) values.get(FETCH_FRAME_TIMEOUT), (int) values.get(DELETE_TIMEOUT),
            (int) values.get(REBUILD_TIMEOUT));
    }

    private static Target target(String value) {
        String text = value.trim();
        if (text.startsWith(DNS)) {
            String name = text.substring(DNS.length());
            if (!name.startsWith("///") || name.indexOf(',') >= 0) {
                throw new ConfigException(TARGET, value,
                    "expected dns:///name:port alone, for example dns:///tierberg.kafka.svc:7410");
            }
            return new Target(true, List.of(address(value, name.substring(3))));
        }
        Set<Address> addresses = new LinkedHashSet<>();
        for (String part : text.split(",", -1)) {
            Address address = address(value, part.trim());
            if (!addresses.add(address)) {
                throw new ConfigException(TARGET, value, address + " is named twice");
            }
        }
        if (addresses.size() > BRIDGES_MAX) {
            throw new ConfigException(TARGET, value, "names " + addresses.size() + " bridges, at most " + BRIDGES_MAX);
        }
        return new Target(false, List.copyOf(addresses));
    }

    private static Address address(String value, String part) {
        if (part.startsWith("unix:")) {
            throw new ConfigException(TARGET, value,
                "the plugin connects by TCP only (no native library in the broker): use host:port");
        }
        int colon = part.lastIndexOf(':');
        String host = colon < 1 ? "" : part.substring(0, colon);
        if (host.startsWith("[") && host.endsWith("]")) {
            host = host.substring(1, host.length() - 1);
        } else if (host.contains(":") || host.contains("/")) {
            host = "";
        }
        int port = port(part.substring(colon + 1));
        if (host.isBlank() || port < 1 || port > 65_535) {
            throw new ConfigException(TARGET, value, "expected host:port, for example bridge.example:7050, IPv6 in "
                + "brackets, several with commas between; found \"" + part + "\"");
        }
        Address address = new Address(host.toLowerCase(Locale.ROOT), port);
        if (!namesAHost(address, value.trim().startsWith(DNS))) {
            throw new ConfigException(TARGET, value, "\"" + part + "\" names no host; one with _ in its name can be "
                + "reached as dns:///name:port");
        }
        return address;
    }

    /** As gRPC will see it; with a look-up of ours, what is no host name (RFC 1123) may still have addresses. */
    private static boolean namesAHost(Address address, boolean looksUp) {
        try {
            URI uri = new URI("//" + address);
            return !uri.getAuthority().contains("@") && (looksUp || uri.getHost() != null);
        } catch (URISyntaxException e) {
            return false;
        }
    }

    private static int port(String text) {
        try {
            return Integer.parseInt(text);
        } catch (NumberFormatException e) {
            return -1;
        }
    }

    private static Tls tls(Map<String, Object> values) {
        Path ca = file(values, TLS_CA);
        Path certificate = file(values, TLS_CERTIFICATE);
        Path key = file(values, TLS_KEY);
        String serverName = (String) values.get(TLS_SERVER_NAME);
        if (!(boolean) values.get(TLS_ENABLED)) {
            if (ca != null || certificate != null || key != null || !serverName.isEmpty()) {
                throw new ConfigException("bridge.tls.* is set but " + TLS_ENABLED + " is not true");
            }
            return null;
        }
        if (ca == null) {
            throw new ConfigException(TLS_CA + " is required when " + TLS_ENABLED + " is true");
        }
        if ((certificate == null) != (key == null)) {
            throw new ConfigException(TLS_CERTIFICATE + " and " + TLS_KEY + " go together: set both or none");
        }
        return new Tls(ca, certificate, key, serverName.isEmpty() ? null : serverName);
    }

    private static Path file(Map<String, Object> values, String key) {
        String name = (String) values.get(key);
        if (name.isEmpty()) {
            return null;
        }
        try {
            Path path = Path.of(name);
            if (Files.isReadable(path) && !Files.isDirectory(path)) {
                return path;
            }
        } catch (InvalidPathException e) {
            throw new ConfigException(key, name, e.getMessage());
        }
        throw new ConfigException(key, name, "no such file, or it cannot be read");
    }
}
