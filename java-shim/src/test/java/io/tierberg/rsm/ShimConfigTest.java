package io.tierberg.rsm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.kafka.common.config.ConfigException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

class ShimConfigTest {
    @TempDir
    Path folder;

    private static ShimConfig parse(String... pairs) {
        Map<String, Object> properties = new HashMap<>(Map.of("bridge.target", "b:1", "cluster.name", "c"));
        for (int i = 0; i < pairs.length; i += 2) {
            properties.put(pairs[i], pairs[i + 1]);
        }
        return ShimConfig.parse(properties);
    }

    private static String refused(String... pairs) {
        return assertThrows(ConfigException.class, () -> parse(pairs)).getMessage();
    }

    @Test
    void defaults() {
        ShimConfig config = parse("broker.id", "1", "unknown.key", "x");
        assertEquals(new ShimConfig.Target(false, List.of(new ShimConfig.Address("b", 1))), config.target());
        assertEquals("c", config.clusterName());
        assertNull(config.tls());
        assertFalse(config.peekLaterTxnIndexes());
        assertEquals(3_000, config.connectTimeoutMs());
        assertEquals(30_000, config.dnsIntervalMs());
        assertEquals(40, config.failoverPercent());
        assertEquals(30_000, config.copyStallTimeoutMs());
        assertEquals(600_000, config.copyProgressTimeoutMs());
        assertEquals(5_000, config.fetchFirstByteTimeoutMs());
        assertEquals(5_000, config.fetchFrameTimeoutMs());
        assertEquals(2_000, config.deleteTimeoutMs());
        assertEquals(120_000, config.rebuildTimeoutMs());
    }

    @ParameterizedTest
    @CsvSource({"bridge.local:7050, bridge.local, 7050", "Bridge.Local:7050, bridge.local, 7050",
        "10.0.0.1:65535, 10.0.0.1, 65535", "[::1]:9, ::1, 9"})
    void targets(String target, String host, int port) {
        assertEquals(new ShimConfig.Target(false, List.of(new ShimConfig.Address(host, port))),
            parse("bridge.target", target).target());
    }

    @ParameterizedTest
    @ValueSource(strings = {"bridge.target", "cluster.name", "bridge.tls.enabled", "bridge.tls.ca.file",
        "bridge.tls.server.name", "peek.later.txn.indexes", "delete.timeout.ms"})
    void aKeyWithoutAValueIsNamed(String key) {
        String message = refused(key, null);
        assertTrue(message.contains(key), message);
    }

    @Test
    void severalTargets() {
        ShimConfig.Target target = parse("bridge.target", " a:1, [fd00::2]:2,10.0.0.3:3 ").target();
        assertFalse(target.dns());
        assertEquals("[a:1, [fd00::2]:2, 10.0.0.3:3]", target.addresses().toString());
        assertEquals("fd00::2", target.addresses().get(1).host());
        target = parse("bridge.target", "dns:///tierberg.kafka.svc:7410").target();
        assertTrue(target.dns());
        assertEquals(List.of(new ShimConfig.Address("tierberg.kafka.svc", 7410)), target.addresses());
    }

    @ParameterizedTest
    @ValueSource(strings = {"bridge", "bridge:", ":7050", "bridge:0", "bridge:65536", "bridge:x", "::1:7", "a/b:1",
        "a:1,b", "a:1,,b:2", "a:1,b:2,", ",a:1", "a:1 b:2", "a:1;b:2", "a:1,::1:7", "dns:///a", "dns:///:7",
        "a:1,dns:///b:2", "[]:1"})
    void targetsThatAreNone(String target) {
        String message = refused("bridge.target", target);
        assertTrue(message.contains("bridge.target") && message.contains("expected host:port"), message);
    }

    @ParameterizedTest
    @ValueSource(strings = {"bridge_1:7050", "a b:7050", "k\u00e4se:7050", "50%:7050", "-:7050", "a:1,b_2:1",
        "dns:///a b:7050", "me@host:7050", "dns:///me@host:7050"})
    void namesOfNoHostAreRefusedWithTheKey(String target) {
        String message = refused("bridge.target", target);
        assertTrue(message.contains("bridge.target") && message.contains("names no host"), message);
    }

    @Test
    void aLookUpMayKnowNamesThatAreNoHostNames() {
        assertEquals("bridge_1", parse("bridge.target", "dns:///bridge_1:7050").target().addresses().get(0).host());
    }

    @Test
    void pathsThatAreNoFilesAreRefusedWithTheKey() {
        for (String path : List.of(System.getProperty("java.io.tmpdir"), "a\0b")) {
            String message = refused("bridge.tls.enabled", "true", "bridge.tls.ca.file", path);
            assertTrue(message.contains("bridge.tls.ca.file"), message);
        }
    }

    @Test
    void badListsNameWhatIsWrong() {
        assertTrue(refused("bridge.target", "a:1,b:x").endsWith("found \"b:x\""));
        assertTrue(refused("bridge.target", "a:1,b:2,A:1").endsWith("a:1 is named twice"));
        for (String target : List.of("dns://server/a:1", "dns:a:1", "dns:///a:1,b:1", "dns:///a:1,dns:///b:1")) {
            String message = refused("bridge.target", target);
            assertTrue(message.contains("expected dns:///name:port alone"), message);
        }
        String many = IntStream.rangeClosed(1, 65).mapToObj(port -> "a:" + port).collect(Collectors.joining(","));
        assertTrue(refused("bridge.target", many).contains("names 65 bridges, at most 64"));
        assertEquals(64, parse("bridge.target", many.substring(0, many.lastIndexOf(','))).target().addresses().size());
    }

    @ParameterizedTest
    @ValueSource(strings = {"unix:/run/tierberg.sock", "a:1,unix:/run/tierberg.sock"})
    void unixSocketsAreRefusedWithTheReason(String target) {
        String message = refused("bridge.target", target);
        assertTrue(message.contains("connects by TCP only"), message);
    }

    @Test
    void theShareOfOneBridgeIsAPercentage() {
        for (String value : new String[] {"0", "101", "half"}) {
            assertTrue(refused("bridge.failover.percent", value).contains("bridge.failover.percent"));
        }
        assertEquals(100, parse("bridge.failover.percent", "100").failoverPercent());
    }

    @Test
    void requiredKeysAreNamed() {
        assertTrue(assertThrows(ConfigException.class, () -> ShimConfig.parse(Map.of("bridge.target", "b:1")))
            .getMessage().contains("cluster.name"));
        assertTrue(assertThrows(ConfigException.class, () -> ShimConfig.parse(Map.of("cluster.name", "c")))
            .getMessage().contains("bridge.target"));
        assertTrue(refused("cluster.name", "").contains("cluster.name"));
    }

    @ParameterizedTest
    @ValueSource(strings = {"connect.timeout.ms", "copy.stall.timeout.ms", "copy.progress.timeout.ms",
        "fetch.first.byte.timeout.ms", "fetch.frame.timeout.ms", "delete.timeout.ms"})
    void timeoutsHaveARange(String key) {
        for (String value : new String[] {"0", "-1", "3600001", "soon"}) {
            assertTrue(refused(key, value).contains(key));
        }
        assertNotNull(parse(key, "1"));
    }

    @Test
    void theWaitOfARebuildHasARange() {
        for (String value : new String[] {"-1", "3600001", "soon"}) {
            assertTrue(refused("rebuild.timeout.ms", value).contains("rebuild.timeout.ms"));
        }
        assertEquals(0, parse("rebuild.timeout.ms", "0").rebuildTimeoutMs());
    }

    @ParameterizedTest
    @CsvSource({"bridge.targets, bridge.target", "rebuild.timeout, rebuild.timeout.ms",
        "fetch.first.byte.timeout.sec, fetch.first.byte.timeout.ms", "Cluster.Name, cluster.name",
        "peek.later.txn.index, peek.later.txn.indexes"})
    void aKeyThatNobodyReadsIsWarnedOf(String key, String meant) throws Exception {
        String log = Logged.during(() -> parse(key, "1"));
        assertTrue(log.contains("WARN") && log.contains(key + " is no setting of this plugin and is ignored; did you "
            + "mean " + meant + "?"), log);
    }

    @Test
    void aKeyLikeNoOtherIsWarnedOfWithAllThereAre() throws Exception {
        String log = Logged.during(() -> parse("s3.endpoint", "x", "broker.id", "3"));
        assertTrue(log.contains("s3.endpoint is no setting") && log.contains("; known are [bridge.dns.interval.ms, "), log);
        assertFalse(log.contains("broker.id"), log);
        assertEquals("", Logged.during(() -> parse("broker.id", "3", "delete.timeout.ms", "7")));
    }

    /** What was to be secured must not be sent in plaintext for a typing error. */
    @ParameterizedTest
    @CsvSource({"bridge.tls.enable, bridge.tls.enabled", "bridge.tsl.enabled, bridge.tls.enabled",
        "bridge.TLS.enabled, bridge.tls.enabled", "tls.enabled, bridge.tls.enabled",
        "bridge.tlsenabled, bridge.tls.enabled", "bridge.tls.ca, ''", "ssl.truststore.location, ''",
        "bridge.ssl.enabled, bridge.tls.enabled", "bridge.tls.certificate, ''",
        "security.protocol, ''", "bridge.secure, ''", "bridge.security.enabled, ''", "mtls.enabled, ''", "usessl, ''",
        "bridge.tls.server.names, bridge.tls.server.name", "bridge_tls_enabled, bridge.tls.enabled",
        "bridge.truststore.location, ''", "client.certificate, ''", "bridge.usetlsforall, ''", "bridge.https, ''",
        "bridge.encrypted, ''", "bridge.x509.enabled, ''", "bridge.isSecure, ''"})
    void aKeyThatWasMeantForTlsEndsTheBroker(String key, String meant) {
        String message = refused(key, "true");
        assertTrue(message.startsWith(key + " is no setting of this plugin, and it asks for security"), message);
        assertTrue(meant.isEmpty() || message.contains("did you mean " + meant + "?"), message);
        assertTrue(message.contains("[bridge.tls.ca.file, bridge.tls.certificate.file, bridge.tls.enabled, "), message);
    }

    @Test
    void theStartIsLoggedOnceWithTargetAndTls() throws Exception {
        String log = Logged.during(() -> Shim.connect("b:1, [::1]:2").close());
        assertTrue(log.contains("INFO") && log.contains("Tierberg plugin (not from its jar), protocol 1: "
            + "bridge.target b:1,[::1]:2, cluster.name test, plaintext, no TLS"), log);
        assertEquals(1, log.lines().count(), log);
        assertTrue(Logged.during(() -> Shim.connect("dns:///b:1").close()).contains("bridge.target dns:///b:1,"));
    }

    @Test
    void tlsKeysGoTogether() throws IOException {
        String file = Files.writeString(folder.resolve("some.pem"), "x").toString();
        String absent = folder.resolve("absent.pem").toString();
        assertTrue(refused("bridge.tls.enabled", "true").contains("bridge.tls.ca.file is required"));
        assertTrue(refused("bridge.tls.ca.file", file).contains("bridge.tls.enabled is not true"));
        assertTrue(refused("bridge.tls.server.name", "x").contains("bridge.tls.enabled is not true"));
        assertTrue(refused("bridge.tls.enabled", "true", "bridge.tls.ca.file", absent).contains("no such file"));
        assertTrue(refused("bridge.tls.enabled", "true", "bridge.tls.ca.file", file, "bridge.tls.key.file", file)
            .contains("go together"));
        assertTrue(refused("bridge.tls.enabled", "maybe").contains("bridge.tls.enabled"));
        ShimConfig.Tls tls = parse("bridge.tls.enabled", "true", "bridge.tls.ca.file", file,
            "bridge.tls.key.file", file, "bridge.tls.certificate.file", file, "bridge.tls.server.name", "n").tls();
        assertEquals("n", tls.serverName());
        assertEquals(Path.of(file), tls.key());
    }

    @Test
    void filesThatHoldNoCertificateAreNamedByConfigure() throws IOException {
        Path file = Files.writeString(folder.resolve("some.pem"), "no certificate");
        String message = assertThrows(ConfigException.class, () -> Shim.connect(1, "bridge.tls.enabled", "true",
            "bridge.tls.ca.file", file.toString())).getMessage();
        assertTrue(message.contains(file.toString()), message);
    }
}
