package io.tierberg.rsm;

import com.google.protobuf.MessageLite;
import io.grpc.Detachable;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.Marshaller;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.protobuf.lite.ProtoLiteUtils;
import io.tierberg.rsm.proto.CopyRequest;
import io.tierberg.rsm.proto.CopyResponse;
import io.tierberg.rsm.proto.DeleteSegmentRequest;
import io.tierberg.rsm.proto.DeleteSegmentResponse;
import io.tierberg.rsm.proto.FetchIndexRequest;
import io.tierberg.rsm.proto.FetchSegmentRequest;

import java.io.InputStream;

/** The four calls of {@code tierberg.v1.RemoteStorage} and the metadata keys that go with them. */
final class BridgeMethods {
    static final String PROTOCOL_VERSION = "1";
    static final Metadata.Key<String> PROTOCOL = Metadata.Key.of("tierberg-protocol", Metadata.ASCII_STRING_MARSHALLER);
    static final Metadata.Key<String> ERROR = Metadata.Key.of("tierberg-error", Metadata.ASCII_STRING_MARSHALLER);

    /** The {@link #ERROR} of a segment that never had the index that was asked for. */
    static final String NO_INDEX = "no_index";

    /** Requests are a {@link CopyRequest} or a {@link FileSlice}. */
    static final MethodDescriptor<Object, CopyResponse> COPY =
        method("CopySegment", MethodType.BIDI_STREAMING, new CopyMarshaller(), of(CopyResponse.getDefaultInstance()));
    /** Answers are the raw bytes of {@code FetchChunk} messages; the receiver closes them. */
    static final MethodDescriptor<FetchSegmentRequest, InputStream> FETCH_SEGMENT =
        method("FetchSegment", MethodType.SERVER_STREAMING, of(FetchSegmentRequest.getDefaultInstance()),
            new RawMarshaller());
    /** Answers as those of {@link #FETCH_SEGMENT}. */
    static final MethodDescriptor<FetchIndexRequest, InputStream> FETCH_INDEX =
        method("FetchIndex", MethodType.SERVER_STREAMING, of(FetchIndexRequest.getDefaultInstance()),
            new RawMarshaller());
    static final MethodDescriptor<DeleteSegmentRequest, DeleteSegmentResponse> DELETE =
        method("DeleteSegment", MethodType.UNARY, of(DeleteSegmentRequest.getDefaultInstance()),
            of(DeleteSegmentResponse.getDefaultInstance()));

    private BridgeMethods() { }

    private static <T extends MessageLite> Marshaller<T> of(T message) {
        return ProtoLiteUtils.marshaller(message);
    }

    private static <Q, R> MethodDescriptor<Q, R> method(String name, MethodType type, Marshaller<Q> request,
                                                        Marshaller<R> response) {
        return MethodDescriptor.<Q, R>newBuilder()
            .setType(type)
            .setFullMethodName(MethodDescriptor.generateFullMethodName("tierberg.v1.RemoteStorage", name))
            .setRequestMarshaller(request)
            .setResponseMarshaller(response)
            .build();
    }

    private static final class CopyMarshaller implements Marshaller<Object> {
        private final Marshaller<CopyRequest> messages = of(CopyRequest.getDefaultInstance());

        @Override
        public InputStream stream(Object value) {
            return value instanceof FileSlice slice ? slice.stream() : messages.stream((CopyRequest) value);
        }

        @Override
        public Object parse(InputStream stream) {
            return messages.parse(stream);
        }
    }

    /** Takes the received buffers over instead of copying them into a message. */
    private static final class RawMarshaller implements Marshaller<InputStream> {
        @Override
        public InputStream stream(InputStream value) {
            return value;
        }

        @Override
        public InputStream parse(InputStream stream) {
            return ((Detachable) stream).detach();
        }
    }
}
