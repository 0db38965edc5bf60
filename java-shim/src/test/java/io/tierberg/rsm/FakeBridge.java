package io.tierberg.rsm;

import com.google.protobuf.ByteString;
import com.google.protobuf.MessageLite;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.NettyServerBuilder;
import io.grpc.protobuf.lite.ProtoLiteUtils;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import io.netty.handler.ssl.SslContext;
import io.tierberg.rsm.proto.CopyRequest;
import io.tierberg.rsm.proto.CopyResponse;
import io.tierberg.rsm.proto.CopyResult;
import io.tierberg.rsm.proto.DeleteSegmentRequest;
import io.tierberg.rsm.proto.DeleteSegmentResponse;
import io.tierberg.rsm.proto.FetchChunk;
import io.tierberg.rsm.proto.FetchIndexRequest;
import io.tierberg.rsm.proto.FetchSegmentRequest;
import io.tierberg.rsm.proto.Heartbeat;
import io.tierberg.rsm.proto.IndexFile;
import io.tierberg.rsm.proto.IndexType;
import io.tierberg.rsm.proto.LaterTransactionIndex;
import io.tierberg.rsm.proto.Restart;
import io.tierberg.rsm.proto.SegmentMetadata;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiConsumer;
import java.util.function.Function;
import java.util.zip.CRC32C;

/** A real gRPC server on loopback whose answers the test scripts. Copies are recorded and checked by default. */
final class FakeBridge implements AutoCloseable {
    volatile String protocol = "1";
    volatile String seenProtocol;
    volatile Function<ServerCallStreamObserver<CopyResponse>, StreamObserver<CopyRequest>> copy = Recorder::new;
    volatile BiConsumer<FetchSegmentRequest, ServerCallStreamObserver<FetchChunk>> fetch;
    volatile BiConsumer<FetchIndexRequest, ServerCallStreamObserver<FetchChunk>> index;
    volatile BiConsumer<DeleteSegmentRequest, StreamObserver<DeleteSegmentResponse>> delete = (request, out) -> {
        out.onNext(DeleteSegmentResponse.getDefaultInstance());
        out.onCompleted();
    };
    /** What a plugin that warms up gets. */
    volatile BiConsumer<Object, ServerCallStreamObserver<FetchChunk>> warm = (request, out) -> {
        out.onNext(FetchChunk.newBuilder().setData(ByteString.copyFrom(new byte[65_536])).build());
        out.onCompleted();
    };
    final AtomicInteger warmUps = new AtomicInteger();
    volatile Recorder recorded;
    final CountDownLatch cancelled = new CountDownLatch(1);
    private final Server server;
    private final int port;

    FakeBridge() throws IOException {
        this(0, null);
    }

    FakeBridge(int port, SslContext tls) throws IOException {
        this(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), tls);
    }

    FakeBridge(InetSocketAddress address, SslContext tls) throws IOException {
        NettyServerBuilder builder = NettyServerBuilder.forAddress(address)
            .addService(service()).intercept(new Versions());
        if (tls != null) {
            builder.sslContext(tls);
        }
        server = builder.build().start();
        port = server.getPort();
    }

    int port() {
        return port;
    }

    String target() {
        return "127.0.0.1:" + port();
    }

    @Override
    public void close() {
        server.shutdownNow();
        try {
            server.awaitTermination(5, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    static StatusRuntimeException error(Status status, String kind) {
        Metadata trailers = new Metadata();
        trailers.put(BridgeMethods.ERROR, kind);
        return status.asRuntimeException(trailers);
    }

    static CopyResponse result(int bytes) {
        return CopyResponse.newBuilder()
            .setResult(CopyResult.newBuilder().setCustomMetadata(ByteString.copyFrom(new byte[bytes]))).build();
    }

    static CopyResponse heartbeat(long received, String stage) {
        return CopyResponse.newBuilder()
            .setHeartbeat(Heartbeat.newBuilder().setReceivedBytes(received).setStage(stage)).build();
    }

    static CopyResponse restart() {
        return CopyResponse.newBuilder().setRestart(Restart.newBuilder().setReason("converter fell over")).build();
    }

    /** Streams all bytes in frames, as fast as the reader's window lets it. */
    static void stream(byte[] bytes, int frame, ServerCallStreamObserver<FetchChunk> out, AtomicInteger sent) {
        out.setOnReadyHandler(new Runnable() {
            private int position;
            private boolean done;

            @Override
            public void run() {
                while (out.isReady() && !done) {
                    int length = Math.min(frame, bytes.length - position);
                    out.onNext(FetchChunk.newBuilder()
                        .setData(ByteString.copyFrom(bytes, position, length)).build());
                    position += length;
                    sent.addAndGet(length);
                    if (position == bytes.length) {
                        done = true;
                        out.onCompleted();
                    }
                }
            }
        });
    }

    private ServerServiceDefinition service() {
        return ServerServiceDefinition.builder("tierberg.v1.RemoteStorage")
            .addMethod(method("CopySegment", MethodType.BIDI_STREAMING, CopyRequest.getDefaultInstance(),
                CopyResponse.getDefaultInstance()), ServerCalls.asyncBidiStreamingCall(out -> {
                    ServerCallStreamObserver<CopyResponse> call = (ServerCallStreamObserver<CopyResponse>) out;
                    call.setOnCancelHandler(cancelled::countDown);
                    StreamObserver<CopyRequest> in = copy.apply(call);
                    if (in instanceof Recorder recorder) {
                        recorded = recorder;
                    }
                    return in;
                }))
            .addMethod(method("FetchSegment", MethodType.SERVER_STREAMING, FetchSegmentRequest.getDefaultInstance(),
                FetchChunk.getDefaultInstance()), ServerCalls.asyncServerStreamingCall((request, out) ->
                    answer(request.hasSegment() ? fetch : warmUp(), request, out)))
            .addMethod(method("FetchIndex", MethodType.SERVER_STREAMING, FetchIndexRequest.getDefaultInstance(),
                FetchChunk.getDefaultInstance()), ServerCalls.asyncServerStreamingCall((request, out) ->
                    answer(request.hasSegment() ? index : warmUp(), request, out)))
            .addMethod(method("DeleteSegment", MethodType.UNARY, DeleteSegmentRequest.getDefaultInstance(),
                DeleteSegmentResponse.getDefaultInstance()), ServerCalls.asyncUnaryCall((request, out) ->
                    delete.accept(request, out)))
            .build();
    }

    private <Q> void answer(BiConsumer<Q, ServerCallStreamObserver<FetchChunk>> script, Q request,
                            StreamObserver<FetchChunk> out) {
        ServerCallStreamObserver<FetchChunk> call = (ServerCallStreamObserver<FetchChunk>) out;
        call.setOnCancelHandler(script == warm ? () -> { } : cancelled::countDown);
        script.accept(request, call);
    }

    @SuppressWarnings("unchecked")
    private <Q> BiConsumer<Q, ServerCallStreamObserver<FetchChunk>> warmUp() {
        warmUps.incrementAndGet();
        return (BiConsumer<Q, ServerCallStreamObserver<FetchChunk>>) (BiConsumer<?, ?>) warm;
    }

    private static <Q extends MessageLite, R extends MessageLite> MethodDescriptor<Q, R> method(
            String name, MethodType type, Q request, R response) {
        return MethodDescriptor.<Q, R>newBuilder().setType(type)
            .setFullMethodName("tierberg.v1.RemoteStorage/" + name)
            .setRequestMarshaller(ProtoLiteUtils.marshaller(request))
            .setResponseMarshaller(ProtoLiteUtils.marshaller(response)).build();
    }

    private final class Versions implements ServerInterceptor {
        @Override
        public <Q, R> ServerCall.Listener<Q> interceptCall(ServerCall<Q, R> call, Metadata headers,
                                                           ServerCallHandler<Q, R> next) {
            seenProtocol = headers.get(BridgeMethods.PROTOCOL);
            return next.startCall(new SimpleForwardingServerCall<Q, R>(call) {
                private boolean spoken;

                @Override
                public void close(Status status, Metadata trailers) {
                    if (protocol != null && !spoken) {
                        trailers.put(BridgeMethods.PROTOCOL, protocol);
                    }
                    super.close(status, trailers);
                }

                @Override
                public void sendHeaders(Metadata answer) {
                    spoken = true;
                    if (protocol != null) {
                        answer.put(BridgeMethods.PROTOCOL, protocol);
                    }
                    super.sendHeaders(answer);
                }
            }, headers);
        }
    }

    /** Checks order, positions and checksums of a copy, keeps its bytes, answers with 40 bytes of metadata. */
    static class Recorder implements StreamObserver<CopyRequest> {
        final ServerCallStreamObserver<CopyResponse> out;
        final Map<IndexType, byte[]> files = new EnumMap<>(IndexType.class);
        final ByteArrayOutputStream log = new ByteArrayOutputStream();
        volatile SegmentMetadata segment;
        volatile List<LaterTransactionIndex> later;
        volatile boolean laterComplete;
        volatile String wrong;
        int passes = 1;
        int largestFrame;
        int largestPiece;
        final Map<IndexType, Long> announced = new LinkedHashMap<>();

        Recorder(ServerCallStreamObserver<CopyResponse> out) {
            this.out = out;
        }

        @Override
        public void onNext(CopyRequest message) {
            if (message.hasStart()) {
                segment = message.getStart().getSegment();
                later = message.getStart().getLaterTransactionIndexesList();
                laterComplete = message.getStart().getLaterTransactionIndexesComplete();
                later.forEach(index -> check(index.getData(), index.getDataCrc32C()));
            } else if (message.hasFile()) {
                check(message.getFile().getData(), message.getFile().getDataCrc32C());
                IndexFile piece = message.getFile();
                largestPiece = Math.max(largestPiece, message.getSerializedSize());
                if (piece.getPosition() != files.getOrDefault(piece.getType(), new byte[0]).length) {
                    wrong = "piece at " + piece.getPosition();
                }
                announced.put(piece.getType(), piece.getSizeBytes());
                files.merge(piece.getType(), piece.getData().toByteArray(), (before, data) -> {
                    byte[] joined = Arrays.copyOf(before, before.length + data.length);
                    System.arraycopy(data, 0, joined, before.length, data.length);
                    return joined;
                });
            } else if (message.hasEnd()) {
                if (message.getEnd().getSizeBytes() != log.size()) {
                    wrong = "size";
                }
                onEnd();
            } else {
                if (message.getPosition() == 0 && log.size() > 0) {
                    passes++;
                    log.reset();
                }
                if (message.getPosition() != log.size()) {
                    wrong = "position " + message.getPosition() + ", expected " + log.size();
                }
                check(message.getData(), message.getDataCrc32C());
                largestFrame = Math.max(largestFrame, message.getData().size());
                log.writeBytes(message.getData().toByteArray());
                onFrame();
            }
        }

        void onFrame() { }

        void onEnd() {
            out.onNext(result(40));
            out.onCompleted();
        }

        private void check(ByteString data, int expected) {
            CRC32C crc = new CRC32C();
            crc.update(data.asReadOnlyByteBuffer());
            if ((int) crc.getValue() != expected) {
                wrong = "checksum";
            }
        }

        @Override
        public void onError(Throwable t) { }

        @Override
        public void onCompleted() {
        }
    }
}
