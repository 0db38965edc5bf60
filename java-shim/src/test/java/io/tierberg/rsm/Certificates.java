package io.tierberg.rsm;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.Base64;
import java.util.concurrent.TimeUnit;

/** Self-signed certificates as PEM files, made by the JDK's keytool. Each is its own authority. */
final class Certificates {
    private static final String PASSWORD = "changeit";

    private Certificates() { }

    /**
     * A certificate and its PKCS#8 key.
     *
     * @param certificate PEM file
     * @param key PEM file
     */
    record Pair(Path certificate, Path key) {
        /** Puts this pair's bytes into the other's files. */
        void replace(Pair other) throws IOException {
            Files.write(other.certificate, Files.readAllBytes(certificate));
            Files.write(other.key, Files.readAllBytes(key));
        }
    }

    static Pair make(Path folder, String name, String algorithm, String subjectAlternative) throws Exception {
        return make(folder, name, algorithm, subjectAlternative, "-1H");
    }

    /** One of two days from {@code begin} on, as keytool's {@code -startdate} has it. */
    static Pair make(Path folder, String name, String algorithm, String subjectAlternative, String begin)
            throws Exception {
        Path store = folder.resolve(name + ".p12");
        Process keytool = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "keytool").toString(),
            "-genkeypair", "-keystore", store.toString(), "-storetype", "PKCS12", "-storepass", PASSWORD,
            "-alias", "a", "-keyalg", algorithm, "-dname", "CN=" + name, "-validity", "2", "-startdate", begin,
            "-ext", "san=" + subjectAlternative, "-ext", "bc=ca:true").redirectErrorStream(true).start();
        String output = new String(keytool.getInputStream().readAllBytes());
        if (!keytool.waitFor(30, TimeUnit.SECONDS) || keytool.exitValue() != 0) {
            throw new IOException("keytool: " + output);
        }
        KeyStore keys = KeyStore.getInstance("PKCS12");
        try (InputStream in = Files.newInputStream(store)) {
            keys.load(in, PASSWORD.toCharArray());
        }
        Path certificate = pem(folder.resolve(name + ".crt"), "CERTIFICATE", keys.getCertificate("a").getEncoded());
        Path key = pem(folder.resolve(name + ".key"), "PRIVATE KEY",
            keys.getKey("a", PASSWORD.toCharArray()).getEncoded());
        return new Pair(certificate, key);
    }

    private static Path pem(Path file, String type, byte[] bytes) throws IOException {
        String body = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(bytes);
        return Files.writeString(file, "-----BEGIN " + type + "-----\n" + body + "\n-----END " + type + "-----\n");
    }
}
