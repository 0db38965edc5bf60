package io.tierberg.rsm;

import io.grpc.netty.GrpcSslContexts;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.PublicKey;
import java.security.Signature;
import java.security.SignatureException;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Objects;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedKeyManager;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * The JDK's TLS with PEM files that may be renewed while the broker runs: each handshake looks whether a file changed.
 * Files that cannot be used after a change (half written, say) are reported once and the old ones stay in force.
 */
final class PemTls {
    private static final Logger LOG = LoggerFactory.getLogger(PemTls.class);
    private static final Pattern KEY =
        Pattern.compile("-----BEGIN PRIVATE KEY-----([A-Za-z0-9+/=\\s]+)-----END PRIVATE KEY-----");
    /** Resumed sessions skip the check of certificates, so none is kept for long. */
    private static final int SESSION_SECONDS = 1;
    private static final char[] NO_PASSWORD = new char[0];
    private static final String ALIAS = "broker";
    private static final byte[] PROBE = new byte[32];

    private final ShimConfig.Tls files;
    private Material material;
    private List<Object> failedState;

    /** What the files said when they had {@code state}. */
    private record Material(List<Object> state, X509ExtendedTrustManager trust, X509ExtendedKeyManager key) { }

    /**
     * Reads the files.
     *
     * @throws IOException or GeneralSecurityException naming the file that cannot be used
     */
    PemTls(ShimConfig.Tls files) throws IOException, GeneralSecurityException {
        this.files = files;
        this.material = read(state());
    }

    /** A context whose managers follow the files. */
    SslContext context() throws IOException {
        SslContextBuilder builder = SslContextBuilder.forClient().trustManager(new Trust())
            .sessionTimeout(SESSION_SECONDS);
        if (files.key() != null) {
            builder.keyManager(new Key());
        }
        return GrpcSslContexts.configure(builder, SslProvider.JDK).build();
    }

    /** Whom we trust and who we are, for the log. */
    String describe() throws IOException, GeneralSecurityException {
        String own = "no client certificate";
        if (files.key() != null) {
            X509Certificate certificate = certificates(files.certificate()).get(0);
            own = "client certificate " + certificate.getSubjectX500Principal() + " until "
                + certificate.getNotAfter().toInstant();
        }
        return "TLS, CA file " + files.ca() + ", " + own;
    }

    private synchronized Material current() {
        List<Object> state = List.of();
        try {
            state = state();
            if (!state.equals(material.state()) && !state.equals(failedState)) {
                material = read(state);
                LOG.info("TLS files were read again");
            }
        } catch (IOException | GeneralSecurityException e) {
            if (!Objects.equals(state, failedState)) {
                failedState = state;
                LOG.warn("changed TLS files cannot be used, the former ones stay in force: {}", e.getMessage());
            }
        }
        return material;
    }

    private List<Object> state() throws IOException {
        List<Object> state = new ArrayList<>();
        for (Path path : new Path[] {files.ca(), files.certificate(), files.key()}) {
            if (path != null) {
                state.add(Files.getLastModifiedTime(path));
                state.add(Files.size(path));
            }
        }
        return state;
    }

    private Material read(List<Object> state) throws IOException, GeneralSecurityException {
        KeyStore authorities = emptyStore();
        for (X509Certificate certificate : certificates(files.ca())) {
            authorities.setCertificateEntry("ca" + authorities.size(), certificate);
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
        trust.init(authorities);
        X509ExtendedKeyManager key = null;
        if (files.key() != null) {
            KeyStore own = emptyStore();
            X509Certificate[] chain = certificates(files.certificate()).toArray(X509Certificate[]::new);
            PrivateKey privateKey = privateKey(files.key(), chain[0].getPublicKey().getAlgorithm());
            if (!belong(privateKey, chain[0].getPublicKey())) {
                throw new GeneralSecurityException(files.key() + ": is not the key of " + files.certificate());
            }
            try {
                chain[0].checkValidity();
            } catch (CertificateException e) {
                LOG.warn("{} is not valid now, bridges will refuse it: {}", files.certificate(), e.getMessage());
            }
            own.setKeyEntry(ALIAS, privateKey, NO_PASSWORD, chain);
            KeyManagerFactory keys = KeyManagerFactory.getInstance("PKIX");
            keys.init(own, NO_PASSWORD);
            key = (X509ExtendedKeyManager) keys.getKeyManagers()[0];
        }
        return new Material(state, (X509ExtendedTrustManager) trust.getTrustManagers()[0], key);
    }

    /** Whether what the key signs is what the certificate's key proves; true for algorithms that we do not know. */
    private static boolean belong(PrivateKey key, PublicKey certified) throws GeneralSecurityException {
        String algorithm = switch (key.getAlgorithm()) {
            case "RSA" -> "SHA256withRSA";
            case "EC" -> "SHA256withECDSA";
            case "EdDSA", "Ed25519", "Ed448" -> "EdDSA";
            default -> null;
        };
        if (algorithm == null) {
            return true;
        }
        Signature signature = Signature.getInstance(algorithm);
        signature.initSign(key);
        signature.update(PROBE);
        byte[] signed = signature.sign();
        signature.initVerify(certified);
        signature.update(PROBE);
        try {
            return signature.verify(signed);
        } catch (SignatureException e) {
            return false;
        }
    }

    private static KeyStore emptyStore() throws IOException, GeneralSecurityException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }

    private static List<X509Certificate> certificates(Path path) throws IOException, GeneralSecurityException {
        List<X509Certificate> found = new ArrayList<>();
        try {
            for (Certificate certificate : CertificateFactory.getInstance("X.509")
                    .generateCertificates(new ByteArrayInputStream(Files.readAllBytes(path)))) {
                found.add((X509Certificate) certificate);
            }
        } catch (CertificateException e) {
            throw new GeneralSecurityException(path + ": " + e.getMessage(), e);
        }
        if (found.isEmpty()) {
            throw new GeneralSecurityException(path + ": holds no certificate");
        }
        return found;
    }

    private static PrivateKey privateKey(Path path, String algorithm) throws IOException, GeneralSecurityException {
        Matcher matcher = KEY.matcher(Files.readString(path, StandardCharsets.ISO_8859_1));
        if (!matcher.find()) {
            throw new GeneralSecurityException(path + ": holds no unencrypted PKCS#8 key (BEGIN PRIVATE KEY)");
        }
        try {
            byte[] encoded = Base64.getMimeDecoder().decode(matcher.group(1));
            return KeyFactory.getInstance(algorithm).generatePrivate(new PKCS8EncodedKeySpec(encoded));
        } catch (InvalidKeySpecException | IllegalArgumentException e) {
            throw new GeneralSecurityException(path + ": no " + algorithm + " key as its certificate needs: "
                + e.getMessage(), e);
        }
    }

    private final class Trust extends X509ExtendedTrustManager {
        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine)
                throws CertificateException {
            current().trust().checkServerTrusted(chain, type, engine);
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket)
                throws CertificateException {
            current().trust().checkServerTrusted(chain, type, socket);
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type) throws CertificateException {
            current().trust().checkServerTrusted(chain, type);
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine)
                throws CertificateException {
            throw new CertificateException("the plugin is no server");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket)
                throws CertificateException {
            throw new CertificateException("the plugin is no server");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type) throws CertificateException {
            throw new CertificateException("the plugin is no server");
        }

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return current().trust().getAcceptedIssuers();
        }
    }

    /** One handshake asks for alias, chain and key one after another; a change between them makes it fail once. */
    private final class Key extends X509ExtendedKeyManager {
        @Override
        public String chooseEngineClientAlias(String[] types, Principal[] issuers, SSLEngine engine) {
            return current().key().chooseEngineClientAlias(types, issuers, engine);
        }

        @Override
        public String chooseClientAlias(String[] types, Principal[] issuers, Socket socket) {
            return current().key().chooseClientAlias(types, issuers, socket);
        }

        @Override
        public String[] getClientAliases(String type, Principal[] issuers) {
            return current().key().getClientAliases(type, issuers);
        }

        @Override
        public X509Certificate[] getCertificateChain(String alias) {
            return current().key().getCertificateChain(alias);
        }

        @Override
        public PrivateKey getPrivateKey(String alias) {
            return current().key().getPrivateKey(alias);
        }

        @Override
        public String[] getServerAliases(String type, Principal[] issuers) {
            return null;
        }

        @Override
        public String chooseServerAlias(String type, Principal[] issuers, Socket socket) {
            return null;
        }
    }
}
