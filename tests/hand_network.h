#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tests/raw_peer.h"
#include "tests/testing.h"
#include "transport/common/test/framed_testing.h"
#include "transport/network.h"

// Clients that a test controls by hand, against a server in virtual time.
namespace hawser::testing_tools {

struct HandNetwork final : transport::Network {
  struct Listening final : transport::Listener {
    std::string address() const override { return "by hand"; }
  };
  Result<std::unique_ptr<transport::Listener>> listen(Loop&, std::string_view, transport::AcceptSink& sink) override {
    accepting = &sink;
    return std::make_unique<Listening>();
  }
  Task<Result<std::unique_ptr<transport::Stream>>> connect(Loop&, std::string, Duration) override {
    co_return fail(ErrorCode::unavailable, "nobody connects here");
  }
  transport::AcceptSink* accepting = nullptr;
};

template <auto F>
RawHeader request_of(std::uint32_t call) {
  using Facts = detail::MethodFacts<F>;
  return {.kind = wire::FrameKind::request, .call = call, .method = Facts::id, .signature = Facts::signature};
}
constexpr std::uint32_t call_id(std::uint32_t slot) { return 1U << 16 | slot; }

std::string text(const Octets& bytes) { return std::string(as_text(bytes)); }

// One connection whose other end is the test.
struct Peer {
  explicit Peer(HandNetwork& network, std::string address = "peer:1", wire::Hello hello = usual_hello()) {
    script.peer = std::move(address);
    network.accepting->accepted(std::make_unique<pipe::ScriptedStream>(script));
    say(text(wire::encode_hello(hello)));
  }
  // Delivers bytes as a socket would. At the end, nothing more has arrived for now.
  void say(std::string_view bytes, std::size_t step = SIZE_MAX) {
    unread = script.deliver(unread + std::string(bytes), step);
    if (!script.paused) script.sink->received(0);
  }
  // Returns the last frame of this kind that the server has sent.
  std::optional<RawFrame> heard(wire::FrameKind kind) const {
    std::optional<RawFrame> found;
    for (std::string_view rest = script.sent; rest.size() >= 36;) {
      const Bytes bytes = as_bytes(rest);
      const auto head = load_le<std::uint32_t>(bytes.data());
      const auto payload = load_le<std::uint32_t>(bytes.data() + 4);
      const RawHeader header = read_raw_header(bytes.subspan(8));
      if (header.kind == kind) {
        found = RawFrame{header, std::string(rest.substr(36, head - 28)), std::string(rest.substr(8 + head, payload))};
      }
      rest.remove_prefix(std::min<std::size_t>(rest.size(), 8UL + head + payload));
    }
    return found;
  }

  pipe::StreamScript script;
  std::string unread;
};

}  // namespace hawser::testing_tools
