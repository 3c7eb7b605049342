#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "block/nbd/handshake.h"
#include "block/nbd/protocol.h"
#include "block/nbd/reply.h"
#include "block/nbd/request.h"

// Arbitrary bytes of an NBD client. The pieces in which they arrive must make no difference.
// Input: u8 bytes that arrive at a time (0: all) | the bytes.
namespace hawser::block::nbd {
namespace {

void expect(bool condition) {
  if (!condition) std::abort();
}

constexpr std::uint64_t export_bytes = 1 << 20;

Result<ExportInfo> find(const std::string& name) {
  if (name != "d") return std::unexpected(Error::application(ENOENT, "absent"));
  return ExportInfo{.name = name, .size = export_bytes};
}

// The bytes of a client, which arrive in pieces.
struct Input {
  std::string_view rest;
  std::size_t piece;
  std::string held = {};
  bool more() {
    if (rest.empty()) return false;
    const std::size_t size = std::min(piece, rest.size());
    held += rest.substr(0, size);
    rest.remove_prefix(size);
    return true;
  }
};

// Returns what the server has sent, and whether requests follow.
std::string negotiate(Input& input, Negotiated& negotiated, bool& agreed) {
  NbdHandshake handshake(TlsOffer::optional);
  for (;;) {
    NbdHandshake::Step step = handshake.next(as_bytes(input.held));
    expect(step.consumed <= input.held.size());
    input.held.erase(0, step.consumed);
    if (step.wants == NbdHandshake::Wants::names) handshake.answer_names(std::vector<std::string>{"d"});
    if (step.wants == NbdHandshake::Wants::tls) handshake.secured();
    if (step.wants == NbdHandshake::Wants::device) step.wants = handshake.answer_device(find(handshake.name()));
    // An option has a bounded reply.
    expect(handshake.output().size() < 64 * (input.rest.size() + input.held.size() + step.consumed + 1000) + 1'000'000);
    if (step.wants == NbdHandshake::Wants::close) break;
    if (step.wants == NbdHandshake::Wants::transmission) {
      agreed = true;
      negotiated = handshake.negotiated();
      break;
    }
    if (step.wants == NbdHandshake::Wants::bytes && step.consumed == 0) {
      expect(input.held.size() < NbdHandshake::option_bytes_max);
      if (!input.more()) break;
    }
  }
  return handshake.output();
}

std::string transmit(Input& input, const Negotiated& negotiated) {
  std::string out;
  RequestReader reader;
  for (;;) {
    if (reader.data_bytes() > 0) {
      const std::size_t part = std::min(reader.data_bytes(), input.held.size());
      input.held.erase(0, part);
      reader.took_data(part);
      if (reader.data_bytes() > 0 && !input.more()) return out;
      continue;
    }
    const RequestReader::Step step = reader.next(as_bytes(input.held));
    if (step.event == RequestReader::Event::invalid) return out + "invalid";
    if (step.event == RequestReader::Event::more) {
      if (!input.more()) return out;
      continue;
    }
    input.held.erase(0, step.consumed);
    const NbdRequest& request = step.request;
    const Refusal refusal = check(request, {.name = "d", .size = export_bytes}, negotiated);
    if (refusal.error != status::ok) {
      out += as_text(ReplyHead::failure(request, negotiated.structured_replies, refusal.error, refusal.text).bytes());
      continue;
    }
    expect(request.offset <= export_bytes && request.length <= export_bytes - request.offset);
    if (request.type == command::block_status) {
      out += as_text(ReplyHead::block_status(request, {{1, state_zero}, {UINT64_MAX, 0}}).bytes());
    } else {
      out += as_text(ReplyHead::data(request, negotiated.structured_replies).bytes());
    }
  }
}

std::string describe(std::string_view bytes, std::size_t piece) {
  Input input{bytes, piece};
  Negotiated negotiated;
  bool agreed = false;
  std::string out = negotiate(input, negotiated, agreed);
  if (agreed) out += transmit(input, negotiated);
  return out;
}

}  // namespace
}  // namespace hawser::block::nbd

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t piece = data[0] == 0 ? bytes.size() : data[0];
  if (hawser::block::nbd::describe(bytes, piece) != hawser::block::nbd::describe(bytes, bytes.size())) std::abort();
  return 0;
}
