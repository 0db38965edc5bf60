package io.tierberg.rsm;

import com.google.protobuf.ByteString;
import io.tierberg.rsm.proto.LaterTransactionIndex;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.CRC32C;

/**
 * The transaction indexes of the segments behind one, in the same folder. They only spare the table waiting, so nothing
 * about them fails a copy: what cannot be read ends the list.
 */
final class LaterTransactionIndexes {
    static final int FILES_MAX = 32;
    static final int BYTES_MAX = 256 * 1024;
    private static final Logger LOG = LoggerFactory.getLogger(LaterTransactionIndexes.class);
    private static final String SUFFIX = ".txnindex";

    private LaterTransactionIndexes() { }

    /** The first ones with a base offset above {@code endOffset}, ascending, as long as all fit the limits. */
    static List<LaterTransactionIndex> read(Path log, long endOffset) {
        List<LaterTransactionIndex> result = new ArrayList<>();
        int left = BYTES_MAX;
        try {
            for (Map.Entry<Long, Path> file : find(log, endOffset).entrySet()) {
                ByteBuffer bytes = whole(file.getValue(), left);
                if (bytes == null) {
                    break;
                }
                left -= bytes.remaining();
                CRC32C crc = new CRC32C();
                crc.update(bytes.duplicate());
                result.add(LaterTransactionIndex.newBuilder().setBaseOffset(file.getKey())
                    .setData(ByteString.copyFrom(bytes)).setDataCrc32C((int) crc.getValue()).build());
            }
        } catch (IOException | DirectoryIteratorException e) {
            LOG.debug("transaction indexes behind {} are not sent", log, e);
        }
        return result;
    }

    private static TreeMap<Long, Path> find(Path log, long endOffset) throws IOException {
        TreeMap<Long, Path> found = new TreeMap<>();
        try (DirectoryStream<Path> files = Files.newDirectoryStream(log.toAbsolutePath().getParent(), "*" + SUFFIX)) {
            for (Path file : files) {
                String name = file.getFileName().toString();
                String digits = name.substring(0, name.length() - SUFFIX.length());
                // Kafka's names have 20 digits; a long has 19.
                if (digits.matches("00[0-9]{18}") && Long.parseLong(digits) > endOffset) {
                    found.put(Long.parseLong(digits), file);
                    if (found.size() > FILES_MAX) {
                        found.pollLastEntry();
                    }
                }
            }
        }
        return found;
    }

    /** The file's bytes, ready to be read; null when there are more than {@code most}. It may grow meanwhile. */
    private static ByteBuffer whole(Path file, int most) throws IOException {
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
            if (channel.size() > most) {
                return null;
            }
            ByteBuffer bytes = ByteBuffer.allocate((int) channel.size());
            int read = 0;
            while (bytes.hasRemaining() && read >= 0) {
                read = channel.read(bytes);
            }
            return bytes.flip();
        }
    }
}
