// Runs the suite over a transport that is only the byte stream, with FramedConnection.
#include "transport/common/framed_connection.h"
#include "transport/conformance/transport_suite_testing.h"

namespace hawser::transport {
namespace {

constexpr std::string_view secret = "a stream within a stream";

class StreamPendingConnection final : public PendingConnection {
 public:
  StreamPendingConnection(Loop& loop, std::size_t message_bytes_max)
      : loop_(loop), message_bytes_max_(message_bytes_max) {}
  std::vector<std::byte> parameters() const override { return {as_bytes(secret).begin(), as_bytes(secret).end()}; }
  void connect(Bytes client, Ready ready) override {
    if (as_text(client) != secret) return ready(fail(ErrorCode::protocol_error, "not a stream"));
    ready({});
  }
  std::unique_ptr<Connection> open(std::unique_ptr<Stream> stream) override {
    return std::make_unique<FramedConnection>(loop_, std::move(stream),
                                              FramedOptions{.message_limit = wire::MessageLimit(message_bytes_max_)});
  }

 private:
  Loop& loop_;
  const std::size_t message_bytes_max_;
};

class StreamEnd final : public TransportWorker {
 public:
  explicit StreamEnd(Loop& loop) : loop_(loop) {}
  std::vector<std::byte> offer() override { return {as_bytes(secret).begin(), as_bytes(secret).end()}; }
  Result<std::unique_ptr<PendingConnection>> select(Bytes offer, const MessageLimits& limits) override {
    if (as_text(offer) != secret) return fail(ErrorCode::protocol_error, "not a stream");
    return std::make_unique<StreamPendingConnection>(loop_, limits.receive_bytes_max);
  }
  Result<std::unique_ptr<PendingConnection>> accept(Bytes server, const MessageLimits& limits) override {
    return select(server, limits);
  }

 private:
  Loop& loop_;
};

class StreamTransport final : public Transport {
 public:
  std::string_view name() const noexcept override { return "loop"; }
  Result<std::shared_ptr<TransportWorker>> attach(Loop& loop) override { return std::make_shared<StreamEnd>(loop); }
};

std::vector<TransportCase> stream_cases() {
  return transport_cases("stream", [] { return std::make_shared<StreamTransport>(); },
                         {FramedConnection::receive_buffer_bytes_min, FramedConnection::receive_block_bytes});
}

INSTANTIATE_TEST_SUITE_P(Stream, TransportSuite, testing::ValuesIn(stream_cases()), name_of_transport_case);

}  // namespace
}  // namespace hawser::transport
