// grpc-java against the server of tests/world: GrpcClient.java CASE ADDRESS. Messages are encoded by hand.
//   grpc: calls and streams at full speed, a slow reader, limits and deadlines.
//   restart: calls until the standard input ends, while the server is started again.
import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

public class GrpcClient {
  static final int LIMIT_SECONDS = 120; // Detects hangs only.

  static void check(boolean holds, Object what) {
    if (!holds) throw new AssertionError(what);
  }

  // ---- Messages of interop.proto ----

  static void varint(ByteArrayOutputStream out, long number) {
    for (; number > 127; number >>>= 7) out.write((int) (number & 127 | 128));
    out.write((int) number);
  }

  static byte[] field(int number, long value) {
    final var out = new ByteArrayOutputStream();
    varint(out, number << 3);
    varint(out, value);
    return out.toByteArray();
  }

  static byte[] field(int number, byte[]... parts) {
    final var out = new ByteArrayOutputStream();
    varint(out, number << 3 | 2);
    int size = 0;
    for (final byte[] part : parts) size += part.length;
    varint(out, size);
    for (final byte[] part : parts) out.writeBytes(part);
    return out.toByteArray();
  }

  static byte[] joined(byte[]... parts) {
    final var out = new ByteArrayOutputStream();
    for (final byte[] part : parts) out.writeBytes(part);
    return out.toByteArray();
  }

  static byte[] simple(int size) {
    return field(2, size);
  }

  static byte[] items(int count, int size, int intervalMs) {
    final byte[] one = field(2, field(1, size), field(2, intervalMs * 1000L));
    final byte[][] all = new byte[count][];
    java.util.Arrays.fill(all, one);
    return joined(all);
  }

  static final MethodDescriptor.Marshaller<byte[]> BYTES = new MethodDescriptor.Marshaller<>() {
    public InputStream stream(byte[] value) {
      return new ByteArrayInputStream(value);
    }

    public byte[] parse(InputStream stream) {
      try {
        return stream.readAllBytes();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  };

  static MethodDescriptor<byte[], byte[]> method(String name, MethodType type) {
    return MethodDescriptor.newBuilder(BYTES, BYTES).setType(type).setFullMethodName("grpc.testing.TestService/" + name).build();
  }

  static final MethodDescriptor<byte[], byte[]> UNARY = method("UnaryCall", MethodType.UNARY);
  static final MethodDescriptor<byte[], byte[]> DOWN = method("StreamingOutputCall", MethodType.SERVER_STREAMING);
  static final MethodDescriptor<byte[], byte[]> BOTH = method("FullDuplexCall", MethodType.BIDI_STREAMING);

  static CallOptions soon() {
    return CallOptions.DEFAULT.withDeadlineAfter(LIMIT_SECONDS, TimeUnit.SECONDS);
  }

  static Future<byte[]> call(ManagedChannel channel, byte[] request) {
    return ClientCalls.futureUnaryCall(channel.newCall(UNARY, soon()), request);
  }

  static int count(Iterator<byte[]> stream) {
    int found = 0;
    for (; stream.hasNext(); ++found) stream.next();
    return found;
  }

  static NettyChannelBuilder channel(String address) {
    // The greatest reply is 4 MiB and some bytes.
    return NettyChannelBuilder.forTarget(address).usePlaintext().maxInboundMessageSize(8 << 20);
  }

  // ---- Cases ----

  static void fullSpeed(ManagedChannel channel) throws Exception {
    for (final int[] one : new int[][] {{64, 1 << 20}, {200, 100_000}, {20, 4 << 20}, {500, 1000}}) {
      final var calls = new ArrayList<Future<byte[]>>();
      for (int i = 0; i < one[0]; ++i) calls.add(call(channel, simple(one[1])));
      for (final var call : calls) check(call.get().length > one[1], "a reply of " + one[1]);
    }
    final var uploads = new ArrayList<Future<byte[]>>();
    final byte[] large = joined(simple(10), field(3, field(2, new byte[1 << 20])));
    for (int i = 0; i < 64; ++i) uploads.add(call(channel, large));
    for (final var call : uploads) check(call.get().length >= 10, "the reply of an upload");
    final var streams = new ArrayList<Iterator<byte[]>>();
    for (int i = 0; i < 16; ++i) streams.add(ClientCalls.blockingServerStreamingCall(channel, DOWN, soon(), items(40, 100_000, 0)));
    for (final var stream : streams) check(count(stream) == 40, "items of a stream");
    final var replies = new AtomicInteger();
    final var ended = new CompletableFuture<Status>();
    final var requests = ClientCalls.asyncBidiStreamingCall(channel.newCall(BOTH, soon()), new StreamObserver<byte[]>() {
      public void onNext(byte[] item) {
        replies.incrementAndGet();
      }

      public void onError(Throwable error) {
        ended.complete(Status.fromThrowable(error));
      }

      public void onCompleted() {
        ended.complete(Status.OK);
      }
    });
    for (int i = 0; i < 500; ++i) requests.onNext(items(1, 1000, 0));
    requests.onCompleted();
    check(ended.get().isOk() && replies.get() == 500, replies + " replies, " + ended.get());
  }

  static void slowReader(ManagedChannel channel) throws Exception {
    final var paused = new ArrayList<Iterator<byte[]>>();
    for (int i = 0; i < 8; ++i) {
      paused.add(ClientCalls.blockingServerStreamingCall(channel, DOWN, soon(), items(30, 1 << 20, 0)));
      paused.get(i).next();
    }
    for (int i = 0; i < 100; ++i) call(channel, simple(100)).get();
    for (final var stream : paused) check(count(stream) == 29, "items of a stream that was not read");
  }

  static Status.Code failure(Runnable call) {
    try {
      call.run();
      return Status.Code.OK;
    } catch (StatusRuntimeException error) {
      return error.getStatus().getCode();
    }
  }

  static void errors(ManagedChannel channel) throws Exception {
    final var neighbour = ClientCalls.blockingServerStreamingCall(channel, DOWN, soon(), items(20, 100, 10));
    final var metadata = new Metadata();
    for (int i = 0; i < 65; ++i) metadata.put(Metadata.Key.of("x-m" + i, Metadata.ASCII_STRING_MARSHALLER), "v");
    final var code = failure(() -> ClientCalls.blockingUnaryCall(
        io.grpc.ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(metadata)), UNARY, soon(), simple(1)));
    check(code == Status.Code.RESOURCE_EXHAUSTED, "65 pairs of metadata: " + code);
    final byte[] refused = joined(simple(1), field(7, field(1, 3), field(2, "€".repeat(100).getBytes(StandardCharsets.UTF_8))));
    try {
      ClientCalls.blockingUnaryCall(channel, UNARY, soon(), refused);
      check(false, "no error");
    } catch (StatusRuntimeException error) {
      check(error.getStatus().getCode() == Status.Code.INVALID_ARGUMENT, error);
      check(error.getStatus().getDescription().equals("€".repeat(100)), error);
    }
    final var late = CallOptions.DEFAULT.withDeadlineAfter(300, TimeUnit.MILLISECONDS);
    final var deadline = failure(() -> count(ClientCalls.blockingServerStreamingCall(channel, DOWN, late, items(1, 10, 60_000))));
    check(deadline == Status.Code.DEADLINE_EXCEEDED, deadline);
    check(count(neighbour) == 20, "items of a neighbour");
  }

  // Calls one after another while the server stops and starts: with the policy, no call fails.
  static void restart(String address) throws Exception {
    final var policy = Map.of("maxAttempts", 5.0, "initialBackoff", "0.1s", "maxBackoff", "1s", "backoffMultiplier", 2.0,
        "retryableStatusCodes", List.of("UNAVAILABLE"));
    final ManagedChannel channel = channel(address).enableRetry()
        .defaultServiceConfig(Map.of("methodConfig", List.of(Map.of("name", List.of(Map.of()), "waitForReady", true, "retryPolicy", policy))))
        .build();
    final var over = new AtomicBoolean();
    final var failures = new ArrayList<Throwable>();
    ClientCalls.blockingUnaryCall(channel, UNARY, soon(), simple(1000));
    final var calls = new AtomicInteger();
    final var threads = new ArrayList<Thread>();
    for (int i = 0; i < 4; ++i) {
      threads.add(new Thread(() -> {
        while (!over.get()) {
          try {
            ClientCalls.blockingUnaryCall(channel, UNARY, soon(), simple(1000));
            calls.incrementAndGet();
          } catch (RuntimeException error) {
            synchronized (failures) {
              failures.add(error);
            }
          }
        }
      }));
    }
    threads.forEach(Thread::start);
    System.out.println("begun");
    System.in.readAllBytes();
    over.set(true);
    for (final var thread : threads) thread.join();
    check(failures.isEmpty() && calls.get() > 0, failures);
    System.out.println(calls + " calls");
  }

  public static void main(String[] words) throws Exception {
    if (words[0].equals("grpc")) {
      final ManagedChannel channel = channel(words[1]).build();
      fullSpeed(channel);
      slowReader(channel);
      errors(channel);
    } else {
      restart(words[1]);
    }
    System.out.println("Java " + Runtime.version() + " " + words[0] + " passed");
    System.exit(0);
  }
}
