package io.tierberg.rsm;

import com.google.protobuf.ByteString;
import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.WireFormat;
import io.grpc.Drainable;
import io.grpc.KnownLength;
import io.tierberg.rsm.proto.CopyRequest;
import io.tierberg.rsm.proto.IndexFile;
import io.tierberg.rsm.proto.IndexType;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.zip.CRC32C;

/**
 * One {@link CopyRequest} whose payload stays in the broker's file until gRPC writes it out.
 *
 * <p>On the wire it is ordinary protobuf: the bytes before the payload, the payload, and the {@code fixed32} checksum
 * after it, computed while the payload passes. Nothing is consumed by that, so gRPC may serialise it again.
 */
final class FileSlice {
    private static final int PIECE_BYTES = 64 * 1024;
    private static final int CRC_BYTES = 1 + Integer.BYTES;
    private static final int FRAME_CRC_TAG = tag(CopyRequest.DATA_CRC32C_FIELD_NUMBER, WireFormat.WIRETYPE_FIXED32);
    private static final int FILE_CRC_TAG = tag(IndexFile.DATA_CRC32C_FIELD_NUMBER, WireFormat.WIRETYPE_FIXED32);

    private final String name;
    private final FileChannel channel;
    private final long position;
    private final int length;
    private final byte[] before;
    private final int crcTag;

    private FileSlice(String name, FileChannel channel, long position, int length, byte[] before, int crcTag) {
        this.name = name;
        this.channel = channel;
        this.position = position;
        this.length = length;
        this.before = before;
        this.crcTag = crcTag;
    }

    /** A frame: {@code length} bytes of the log file from {@code position} on. */
    static FileSlice frame(FileChannel log, long position, int length) {
        byte[] before = bytes(out -> {
            out.writeInt64(CopyRequest.POSITION_FIELD_NUMBER, position);
            out.writeTag(CopyRequest.DATA_FIELD_NUMBER, WireFormat.WIRETYPE_LENGTH_DELIMITED);
            out.writeUInt32NoTag(length);
        });
        return new FileSlice("log file", log, position, length, before, FRAME_CRC_TAG);
    }

    /** A piece of a file beside the log: {@code length} bytes from {@code position} on, of {@code size}. */
    static FileSlice index(IndexType type, FileChannel file, long position, int length, long size) {
        byte[] inner = bytes(out -> {
            out.writeEnum(IndexFile.TYPE_FIELD_NUMBER, type.getNumber());
            out.writeInt64(IndexFile.POSITION_FIELD_NUMBER, position);
            out.writeInt64(IndexFile.SIZE_BYTES_FIELD_NUMBER, size);
            out.writeTag(IndexFile.DATA_FIELD_NUMBER, WireFormat.WIRETYPE_LENGTH_DELIMITED);
            out.writeUInt32NoTag(length);
        });
        byte[] before = bytes(out -> {
            out.writeTag(CopyRequest.FILE_FIELD_NUMBER, WireFormat.WIRETYPE_LENGTH_DELIMITED);
            out.writeUInt32NoTag(inner.length + length + CRC_BYTES);
            out.writeRawBytes(inner);
        });
        return new FileSlice(type + " file", file, position, length, before, FILE_CRC_TAG);
    }

    /** A piece of a file that is already in memory: from {@code position} to {@code end}, exclusive. */
    static CopyRequest index(IndexType type, ByteBuffer file, int position, int end) {
        ByteBuffer data = file.slice(file.position() + position, end - position);
        CRC32C crc = new CRC32C();
        crc.update(data.duplicate());
        return CopyRequest.newBuilder().setFile(IndexFile.newBuilder().setType(type)
            .setData(ByteString.copyFrom(data)).setDataCrc32C((int) crc.getValue()).setPosition(position)
            .setSizeBytes(file.remaining())).build();
    }

    /** The message for gRPC: lazily drained, its length known beforehand. */
    InputStream stream() {
        return new SliceStream();
    }

    private int size() {
        return before.length + length + CRC_BYTES;
    }

    private void writeTo(OutputStream out) throws IOException {
        out.write(before);
        CRC32C crc = new CRC32C();
        byte[] piece = new byte[Math.min(PIECE_BYTES, length)];
        int done = 0;
        while (done < length) {
            ByteBuffer buffer = ByteBuffer.wrap(piece, 0, Math.min(piece.length, length - done));
            int read = channel.read(buffer, position + done);
            if (read < 0) {
                throw new EOFException(name + " ends at byte " + (position + done) + ", expected "
                    + (position + length));
            }
            crc.update(piece, 0, read);
            out.write(piece, 0, read);
            done += read;
        }
        int value = (int) crc.getValue();
        out.write(new byte[] {(byte) crcTag, (byte) value, (byte) (value >>> 8), (byte) (value >>> 16),
            (byte) (value >>> 24)});
    }

    private static int tag(int field, int wireType) {
        return field << 3 | wireType;
    }

    private static byte[] bytes(Encoder encoder) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(32);
        CodedOutputStream out = CodedOutputStream.newInstance(bytes);
        try {
            encoder.encode(out);
            out.flush();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return bytes.toByteArray();
    }

    private interface Encoder {
        void encode(CodedOutputStream out) throws IOException;
    }

    /** gRPC asks for the length first and then drains; reading byte by byte works too, by way of a copy. */
    private final class SliceStream extends InputStream implements Drainable, KnownLength {
        private ByteArrayInputStream copy;
        private boolean drained;

        @Override
        public int drainTo(OutputStream target) throws IOException {
            drained = true;
            writeTo(target);
            return size();
        }

        @Override
        public int available() {
            return copy != null ? copy.available() : drained ? 0 : size();
        }

        @Override
        public int read() throws IOException {
            return copy().read();
        }

        @Override
        public int read(byte[] target, int offset, int count) throws IOException {
            return copy().read(target, offset, count);
        }

        private InputStream copy() throws IOException {
            if (copy == null) {
                ByteArrayOutputStream bytes = new ByteArrayOutputStream(size());
                writeTo(bytes);
                copy = new ByteArrayInputStream(bytes.toByteArray());
            }
            return copy;
        }
    }
}
