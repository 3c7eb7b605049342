#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/grpc/machine.h"

// A machine of gRPC whose peer sends the input. It must not crash, must hold no more than its limits allow, and must
// not produce output without bound. Input: u8 mode | bytes. Mode bit 0: the machine is a client with one call. Bit 1:
// the preface and an empty SETTINGS are sent first. Bit 2: calls are busy until they have ended. Bits 3 to 7: largest
// number of bytes that arrive at a time, minus one; 31 means no limit.
namespace hawser::protocol::grpc {
namespace {

void expect(bool condition, std::source_location where = std::source_location::current()) {
  if (condition) return;
  std::fprintf(stderr, "line %u: not as expected\n", static_cast<unsigned>(where.line()));
  std::abort();
}

constexpr std::size_t message_bytes_max = 100'000;
constexpr std::size_t received_bytes_max = std::size_t{1} << 20;

class Peer final : public MachineSink {
 public:
  explicit Peer(const MachineOptions& options, bool busy)
      : budget_(received_bytes_max, received_bytes_max),
        account_(&budget_),
        busy_(busy),
        machine(options, *this, &account_, output_) {}

  void on_headers(GrpcStream& stream) override {
    stream.busy = busy_;
    if (stream.fields.path.size() % 2 == 0) stream.reader.set_room(stream.fields.metadata.size());
    stream.take = stream.fields.path.size() % 3 == 0 ? GrpcStream::Take::keep_one : GrpcStream::Take::deliver;
  }
  void on_message(GrpcStream& stream, Bytes message, Block*) override {
    expect(message.size() <= message_bytes_max);
    touch(message);
    stream.held_bytes += message.size() + 64;
    if (message.size() % 2 == 0) machine.release(stream, stream.held_bytes);
    if (machine.options().server && message.size() % 3 == 0) {
      machine.send_message(stream, Buffer::copy_of(std::string_view("\0\0\0\0\1x", 6)), {}, nullptr, 1);
    }
  }
  void on_end(GrpcStream& stream) override {
    touch(stream.message);
    if (machine.options().server) machine.send_status(stream, 0, "done");
    if (stream.busy) machine.release_stream(stream);
  }
  void on_bad(GrpcStream& stream, const Error& why) override {
    if (machine.options().server)
      machine.send_status(stream, 13, why.text);
    else
      machine.reset(stream, 8);
  }
  void on_closed(GrpcStream& stream, std::uint32_t) override { machine.release_stream(stream); }
  void on_sent(GrpcStream&, std::uint32_t) override {}
  void on_goaway(std::int32_t, std::uint32_t, std::string_view text) override { sum_ += text.size(); }
  void on_pong(bool) override {}

  void drain() {
    for (int i = 0; i < 100; ++i) {
      machine.pump();
      if (output_.empty()) return;
      ConstBuffer piece;
      output_.peek({&piece, 1});
      touch({piece.data, piece.size});
      output_.consume(piece.size);
    }
  }

 private:
  void touch(Bytes bytes) {
    for (const std::byte byte : bytes) sum_ += std::to_integer<std::size_t>(byte);
  }

  detail::ReceiveBudget budget_;
  detail::ReceiveAccount account_;
  const bool busy_;
  volatile std::size_t sum_ = 0;
  pipe::SendQueue output_;

 public:
  GrpcMachine machine;  // Ends before the account.
};

void run(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return;
  const unsigned mode = data[0];
  const bool client = (mode & 1) != 0;
  const std::size_t step = (mode >> 3) == 31 ? SIZE_MAX : (mode >> 3) + 1;
  std::string input(reinterpret_cast<const char*>(data + 1), size - 1);
  if ((mode & 2) != 0) {
    input.insert(0, std::string("\0\0\0\4\0\0\0\0\0", 9));
    if (!client) input.insert(0, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  }
  Peer peer({.connection = {.server = !client, .streams_max = 16, .stream_window_bytes = 65'535},
             .message_bytes_max = message_bytes_max},
            (mode & 4) != 0);
  if (client) {
    const GrpcMachine::Field fields[] = {
        {":method", "POST"}, {":scheme", "http"}, {":path", "/a"}, {":authority", "b"}};
    GrpcStream* const stream = peer.machine.begin_request(fields);
    expect(stream != nullptr);
    peer.machine.send_end(*stream);
  }
  peer.drain();
  std::string_view rest = input;
  Time now{};
  while (!rest.empty()) {
    const std::string part(rest.substr(0, step));
    rest.remove_prefix(part.size());
    now += std::chrono::milliseconds(1);
    if (!peer.machine.receive(as_bytes(part), nullptr, now)) break;
    expect(peer.machine.used_streams() <= 16);
    expect(peer.machine.queued_frames() < 4096);
    peer.drain();
  }
  peer.drain();
}

}  // namespace
}  // namespace hawser::protocol::grpc

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  hawser::protocol::grpc::run(data, size);
  return 0;
}
