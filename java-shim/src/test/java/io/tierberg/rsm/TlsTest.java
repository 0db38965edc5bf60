package io.tierberg.rsm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.netty.GrpcSslContexts;
import io.netty.handler.ssl.ClientAuth;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.io.InputStream;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

@Timeout(60)
class TlsTest {
    @TempDir
    static Path folder;
    private static Certificates.Pair server;
    private static Certificates.Pair otherServer;
    private static Certificates.Pair client;
    private static Certificates.Pair stranger;

    @BeforeAll
    static void make() throws Exception {
        server = Certificates.make(folder, "server", "RSA", "ip:127.0.0.1,dns:bridge.example");
        otherServer = Certificates.make(folder, "other-server", "EC", "dns:bridge.example");
        client = Certificates.make(folder, "client", "EC", "dns:broker-1");
        stranger = Certificates.make(folder, "stranger", "EC", "dns:broker-1");
    }

    /** A bridge that asks for the certificate of {@code client} unless that is null. */
    private static FakeBridge bridge(int port, Certificates.Pair own, Certificates.Pair client) throws Exception {
        SslContextBuilder builder = SslContextBuilder.forServer(own.certificate().toFile(), own.key().toFile());
        if (client != null) {
            builder.trustManager(client.certificate().toFile()).clientAuth(ClientAuth.REQUIRE);
        }
        SslContext context = GrpcSslContexts.configure(builder, SslProvider.JDK).build();
        return new FakeBridge(port, context);
    }

    private static TierbergRemoteStorageManager shim(int port, Path ca, Certificates.Pair own, String... more) {
        // A first handshake costs a loaded machine more than the two seconds that a delete has.
        List<String> settings = new ArrayList<>(List.of("bridge.tls.enabled", "true", "bridge.tls.ca.file",
            ca.toString(), "delete.timeout.ms", "20000", "connect.timeout.ms", "20000"));
        if (own != null) {
            settings.addAll(List.of("bridge.tls.certificate.file", own.certificate().toString(),
                "bridge.tls.key.file", own.key().toString()));
        }
        settings.addAll(List.of(more));
        return Shim.connect(port, settings.toArray(String[]::new));
    }

    private static void delete(TierbergRemoteStorageManager manager) throws RemoteStorageException {
        manager.deleteLogSegmentData(Shim.segment(1));
    }

    /** A connection that began before the files changed may still fail one call. */
    private static void deleteSoon(TierbergRemoteStorageManager manager) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        while (true) {
            try {
                delete(manager);
                return;
            } catch (RemoteStorageException e) {
                if (System.nanoTime() > end) {
                    throw e;
                }
                Thread.sleep(50);
            }
        }
    }

    private static String refused(TierbergRemoteStorageManager manager) {
        String message = assertThrows(RemoteStorageException.class, () -> delete(manager)).getMessage();
        assertTrue(message.contains("UNAVAILABLE"), message);
        return message;
    }

    @Test
    void allOperationsOverMutualTls() throws Exception {
        try (FakeBridge bridge = bridge(0, server, client);
             TierbergRemoteStorageManager manager = shim(bridge.port(), server.certificate(), client)) {
            byte[] log = Shim.random(5_000_000, 31);
            bridge.fetch = (request, out) -> FakeBridge.stream(log, 200_000, out, new AtomicInteger());
            manager.copyLogSegmentData(Shim.segment(1), Shim.files(folder.resolve("all"), log, true));
            assertArrayEquals(log, bridge.recorded.log.toByteArray());
            try (InputStream in = manager.fetchLogSegment(Shim.segment(1), 0)) {
                assertArrayEquals(log, in.readAllBytes());
            }
            delete(manager);
        }
    }

    @Test
    void plainTlsNeedsNoCertificateOfOurs() throws Exception {
        try (FakeBridge bridge = bridge(0, server, null);
             TierbergRemoteStorageManager manager = shim(bridge.port(), server.certificate(), null)) {
            delete(manager);
        }
    }

    @Test
    void aMissingOrWrongCertificateOfOursIsRefused() throws Exception {
        try (FakeBridge bridge = bridge(0, server, client);
             TierbergRemoteStorageManager none = shim(bridge.port(), server.certificate(), null);
             TierbergRemoteStorageManager wrong = shim(bridge.port(), server.certificate(), stranger)) {
            String log = Logged.during(() -> {
                refused(none);
                refused(wrong);
            });
            assertTrue(log.contains("no client certificate: a bridge that does not accept"), log);
            assertTrue(log.contains("client certificate CN=stranger until 20"), log);
        }
    }

    @Test
    void aBridgeWithAnUnknownCertificateIsRefused() throws Exception {
        try (FakeBridge bridge = bridge(0, server, null);
             TierbergRemoteStorageManager manager = shim(bridge.port(), stranger.certificate(), null)) {
            String message = refused(manager);
            assertTrue(message.contains("PKIX") || message.contains("ertificat"), message);
        }
    }

    @Test
    void theNameInTheCertificateIsChecked() throws Exception {
        try (FakeBridge bridge = bridge(0, otherServer, null);
             TierbergRemoteStorageManager byAddress = shim(bridge.port(), otherServer.certificate(), null);
             TierbergRemoteStorageManager byName = shim(bridge.port(), otherServer.certificate(), null,
                 "bridge.tls.server.name", "bridge.example");
             TierbergRemoteStorageManager byWrongName = shim(bridge.port(), otherServer.certificate(), null,
                 "bridge.tls.server.name", "bridge.example.com")) {
            refused(byAddress);
            refused(byWrongName);
            delete(byName);
        }
    }

    @Test
    void theNameThatIsLookedUpMustBeInTheCertificate() throws Exception {
        String[] tls = {"bridge.tls.enabled", "true", "bridge.tls.ca.file", otherServer.certificate().toString()};
        Bridges.Lookup lookup = host -> new InetAddress[] {InetAddress.getLoopbackAddress()};
        try (FakeBridge bridge = bridge(0, otherServer, null);
             TierbergRemoteStorageManager right = Shim.configured(new TierbergRemoteStorageManager(lookup),
                 "dns:///bridge.example:" + bridge.port(), tls);
             TierbergRemoteStorageManager wrong = Shim.configured(new TierbergRemoteStorageManager(lookup),
                 "dns:///other.example:" + bridge.port(), tls)) {
            delete(right);
            refused(wrong);
        }
    }

    @Test
    void plaintextAndTlsDoNotMix() throws Exception {
        try (FakeBridge bridge = bridge(0, server, null);
             FakeBridge plain = new FakeBridge();
             TierbergRemoteStorageManager toTls = Shim.connect(bridge.port());
             TierbergRemoteStorageManager toPlain = shim(plain.port(), server.certificate(), null)) {
            assertThrows(RemoteStorageException.class, () -> delete(toTls));
            assertThrows(RemoteStorageException.class, () -> delete(toPlain));
        }
    }

    @Test
    void changedFilesAreReadAgainWithoutARestart() throws Exception {
        Path home = Files.createDirectories(folder.resolve("renewed"));
        Path ca = Files.copy(server.certificate(), home.resolve("ca.crt"));
        Certificates.Pair own = new Certificates.Pair(Files.copy(stranger.certificate(), home.resolve("own.crt")),
            Files.copy(stranger.key(), home.resolve("own.key")));
        FakeBridge bridge = bridge(0, server, client);
        int port = bridge.port();
        try (TierbergRemoteStorageManager manager = shim(port, ca, own)) {
            refused(manager);
            client.replace(own);
            deleteSoon(manager);
            bridge.close();
            bridge = bridge(port, otherServer, client);
            refused(manager);
            Files.writeString(ca, "half a file");
            refused(manager);
            Files.write(ca, Files.readAllBytes(otherServer.certificate()));
            bridge.close();
            Certificates.Pair renewed = Certificates.make(folder, "server-2", "EC", "ip:127.0.0.1");
            bridge = bridge(port, renewed, client);
            refused(manager);
            Files.write(ca, Files.readAllBytes(renewed.certificate()));
            deleteSoon(manager);
        } finally {
            bridge.close();
        }
    }

    @Test
    void textBeforeAKeyMayBeOfAnyLanguage() throws Exception {
        Path noted = Files.writeString(folder.resolve("noted.key"), "friendlyName: Schl\u00fcssel\n"
            + Files.readString(client.key()));
        assertDoesNotThrow(() -> shim(1, server.certificate(), new Certificates.Pair(client.certificate(), noted)).close());
    }

    @Test
    void keysThatCannotBeUsedAreNamedByConfigure() throws Exception {
        Path odd = Files.writeString(folder.resolve("pkcs1.key"), "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n"
            + "-----END RSA PRIVATE KEY-----\n");
        ConfigException e = assertThrows(ConfigException.class, () -> shim(1, server.certificate(),
            new Certificates.Pair(client.certificate(), odd)));
        assertTrue(e.getMessage().contains("pkcs1.key: holds no unencrypted PKCS#8 key"), e.getMessage());
        e = assertThrows(ConfigException.class, () -> shim(1, server.certificate(),
            new Certificates.Pair(client.certificate(), server.key())));
        assertTrue(e.getMessage().contains("server.key: no EC key as its certificate needs"), e.getMessage());
        e = assertThrows(ConfigException.class, () -> shim(1, server.certificate(),
            new Certificates.Pair(client.certificate(), stranger.key())));
        assertTrue(e.getMessage().contains("stranger.key: is not the key of " + client.certificate()), e.getMessage());
        assertEquals(0, Files.size(Files.createFile(folder.resolve("empty.crt"))));
        e = assertThrows(ConfigException.class, () -> shim(1, folder.resolve("empty.crt"), null));
        assertTrue(e.getMessage().contains("empty.crt"), e.getMessage());
    }

    @Test
    void aCertificateThatHasEndedIsSaid() throws Exception {
        Certificates.Pair ended = Certificates.make(folder, "ended", "EC", "dns:broker-1", "-3d");
        String log = Logged.during(() -> shim(1, server.certificate(), ended).close());
        assertTrue(log.contains("ended.crt is not valid now, bridges will refuse it"), log);
    }

    @Test
    void theStartSaysWhoTheBrokerIs() throws Exception {
        String log = Logged.during(() -> shim(1, server.certificate(), client).close());
        assertTrue(log.contains("TLS, CA file " + server.certificate() + ", client certificate CN=client until 20"),
            log);
        log = Logged.during(() -> shim(1, server.certificate(), null).close());
        assertTrue(log.contains("TLS, CA file " + server.certificate() + ", no client certificate"), log);
    }
}
