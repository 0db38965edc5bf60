package io.tierberg.rsm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Drainable;
import io.tierberg.rsm.proto.CopyRequest;
import io.tierberg.rsm.proto.IndexType;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.zip.CRC32C;

class FileSliceTest {
    @TempDir
    Path folder;

    private FileChannel file(byte[] bytes) throws IOException {
        return FileChannel.open(Files.write(folder.resolve("file"), bytes));
    }

    private static byte[] drain(FileSlice slice) throws IOException {
        InputStream stream = slice.stream();
        int promised = stream.available();
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        assertEquals(promised, ((Drainable) stream).drainTo(out));
        assertEquals(promised, out.size());
        return out.toByteArray();
    }

    private static int crc(byte[] bytes) {
        CRC32C crc = new CRC32C();
        crc.update(bytes);
        return (int) crc.getValue();
    }

    @ParameterizedTest
    @CsvSource({"0, 1", "0, 127", "1, 128", "300000, 65536", "65535, 65537", "7, 1048512"})
    void frameIsTheProtobufMessage(long position, int length) throws IOException {
        byte[] bytes = Shim.random(2_000_000, 5);
        try (FileChannel channel = file(bytes)) {
            FileSlice slice = FileSlice.frame(channel, position, length);
            byte[] first = drain(slice);
            CopyRequest message = CopyRequest.parseFrom(first);
            byte[] expected = Arrays.copyOfRange(bytes, (int) position, (int) position + length);
            assertEquals(position, message.getPosition());
            assertArrayEquals(expected, message.getData().toByteArray());
            assertEquals(crc(expected), message.getDataCrc32C());
            assertArrayEquals(first, drain(slice), "a resend must be the same bytes");
        }
    }

    @Test
    void readingWithoutDrainingGivesTheSameBytes() throws IOException {
        try (FileChannel channel = file(Shim.random(1000, 6))) {
            FileSlice slice = FileSlice.frame(channel, 10, 500);
            InputStream stream = slice.stream();
            int first = stream.read();
            byte[] rest = stream.readAllBytes();
            byte[] drained = drain(slice);
            assertEquals(drained[0] & 0xff, first);
            assertArrayEquals(Arrays.copyOfRange(drained, 1, drained.length), rest);
            assertEquals(0, stream.available());
        }
    }

    @Test
    void wholeMessageOfAFullFrameFitsOneBuffer() throws IOException {
        try (FileChannel channel = file(new byte[SegmentCopy.FRAME_BYTES])) {
            assertTrue(FileSlice.frame(channel, 0, SegmentCopy.FRAME_BYTES).stream().available() + 5 + 8 <= 1 << 20);
        }
    }

    @Test
    void indexFileIsTheProtobufMessage() throws IOException {
        for (int length : new int[] {0, 12, 70_000}) {
            byte[] bytes = Shim.random(length, 7);
            try (FileChannel channel = file(bytes)) {
                CopyRequest message = CopyRequest.parseFrom(
                    drain(FileSlice.index(IndexType.PRODUCER_SNAPSHOT, channel, 0, length, length)));
                assertEquals(0, message.getFile().getPosition());
                assertEquals(length, message.getFile().getSizeBytes());
                assertEquals(IndexType.PRODUCER_SNAPSHOT, message.getFile().getType());
                assertArrayEquals(bytes, message.getFile().getData().toByteArray());
                assertEquals(crc(bytes), message.getFile().getDataCrc32C());
            }
        }
    }

    @Test
    void aPieceOfAnIndexFileSaysWhereItLies() throws IOException {
        byte[] bytes = Shim.random(1000, 7);
        try (FileChannel channel = file(bytes)) {
            CopyRequest message = CopyRequest.parseFrom(
                drain(FileSlice.index(IndexType.TRANSACTION, channel, 300, 400, 1000)));
            assertArrayEquals(Arrays.copyOfRange(bytes, 300, 700), message.getFile().getData().toByteArray());
            assertEquals(crc(Arrays.copyOfRange(bytes, 300, 700)), message.getFile().getDataCrc32C());
            assertEquals(300, message.getFile().getPosition());
            assertEquals(1000, message.getFile().getSizeBytes());
        }
        ByteBuffer buffer = ByteBuffer.wrap(bytes, 100, 900);
        CopyRequest message = FileSlice.index(IndexType.LEADER_EPOCH, buffer, 200, 250);
        assertArrayEquals(Arrays.copyOfRange(bytes, 300, 350), message.getFile().getData().toByteArray());
        assertEquals(200, message.getFile().getPosition());
        assertEquals(900, message.getFile().getSizeBytes());
    }

    @Test
    void bytesInMemoryLeaveTheBufferAlone() {
        ByteBuffer buffer = ByteBuffer.wrap(Shim.EPOCHS);
        CopyRequest message = FileSlice.index(IndexType.LEADER_EPOCH, buffer, 0, buffer.remaining());
        assertEquals(Shim.EPOCHS.length, buffer.remaining());
        assertArrayEquals(Shim.EPOCHS, message.getFile().getData().toByteArray());
        assertEquals(crc(Shim.EPOCHS), message.getFile().getDataCrc32C());
    }

    @Test
    void aFileThatEndsEarlyIsAnError() throws IOException {
        try (FileChannel channel = file(new byte[100])) {
            EOFException e = assertThrows(EOFException.class, () -> drain(FileSlice.frame(channel, 40, 61)));
            assertEquals("log file ends at byte 100, expected 101", e.getMessage());
        }
    }
}
