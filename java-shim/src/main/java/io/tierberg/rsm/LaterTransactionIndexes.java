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
 *
 * @param files    the first ones with a base offset above the segment's end, ascending, as long as all fit the limits
 * @param complete they are all there are
 */
record LaterTransactionIndexes(List<LaterTransactionIndex> files, boolean complete) {
    static final int FILES_MAX = 32;
    static final int BYTES_MAX = 256 * 1024;
    private static final Logger LOG = LoggerFactory.getLogger(LaterTransactionIndexes.class);
    private static final String SUFFIX = ".txnindex";

    /** What lies behind the segment {@code log}, which ends with {@code endOffset}. */
    static LaterTransactionIndexes read(Path log, long endOffset) {
        List<LaterTransactionIndex> result = new ArrayList<>();
        boolean complete = false;
        int left = BYTES_MAX;
        try {
            TreeMap<Long, Path> found = find(log, endOffset);
            for (Map.Entry<Long, Path> file : found.entrySet()) {
                ByteBuffer bytes = result.size() < FILES_MAX ? whole(file.getValue(), left) : null;
                if (bytes == null) {
                    break;
                }
                left -= bytes.remaining();
                CRC32C crc = new CRC32C();
                crc.update(bytes.duplicate());
                result.add(LaterTransactionIndex.newBuilder().setBaseOffset(file.getKey())
                    .setData(ByteString.copyFrom(bytes)).setDataCrc32C((int) crc.getValue()).build());
            }
            // Kafka deletes segments in the order of their offsets: while this one is there, those behind it are.
            complete = result.size() == found.size() && Files.exists(log);
        } catch (IOException | DirectoryIteratorException e) {
            LOG.debug("transaction indexes behind {} are not sent", log, e);
        }
        return new LaterTransactionIndexes(result, complete);
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
                    if (found.size() > FILES_MAX + 1) {
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
