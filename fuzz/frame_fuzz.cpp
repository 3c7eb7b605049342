#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <type_traits>
#include <vector>

#include "hawser/metadata.h"
#include "wire/frame.h"
#include "wire/hello.h"
#include "wire/metadata.h"

// Decodes arbitrary bytes as a frame, as a HELLO and as metadata. Decoded values must be consistent, and must be
// encoded to the same bytes. Input: u8 kind of data | for a frame u16 payload bytes | the bytes, of a frame head and
// payload.
namespace hawser::wire {
namespace {

void expect(bool condition) {
  if (!condition) std::abort();
}

template <class Fields>
constexpr bool has_payload = std::is_same_v<Fields, RequestFrame> || std::is_same_v<Fields, ResponseFrame> ||
                             std::is_same_v<Fields, StreamDataFrame>;

void check_metadata_entries(Bytes bytes) {
  if (!check_metadata(bytes)) return;
  std::size_t entries = 0;
  std::vector<std::byte> again(bytes.size());
  std::byte* at = again.data();
  MetadataReader reader(bytes);
  for (std::string_view key, value; reader.next(key, value); ++entries) {
    expect(MetadataView(bytes).find(key).has_value());
    at = write_metadata_entry(at, key, value);
  }
  expect(entries <= metadata_entries_max && at == again.data() + again.size());
  expect(as_text(again) == as_text(bytes) && MetadataView(bytes).copy().size() == entries);
}

// The fields that visit() passed are the same after they have been encoded and decoded again.
template <class Fields>
void check_fields(const Frame& frame, const Fields& fields) {
  expect(frame.kind == Fields::kind && to_string(frame.kind) != "unknown");
  std::byte header[header_bytes];
  encode(header, fields);
  const Result<Frame> again = decode_frame(header, {}, SIZE_MAX * static_cast<std::size_t>(has_payload<Fields>));
  expect(again.has_value());
  visit(*again, [&](const auto& other) {
    if constexpr (std::is_same_v<decltype(other), const Fields&>) {
      expect(other == fields);
    } else {
      expect(false);
    }
  });
  if constexpr (requires { fields.call; }) expect(frame.call() == fields.call);
  if constexpr (std::is_same_v<Fields, RequestFrame>) static_cast<void>(decode_deadline(fields.deadline));
}

void check_frame(Bytes head, Bytes payload) {
  const Result<Frame> frame = decode_frame(head, payload, payload.size());
  // Decoding a truncated head returns the same kind and call.
  const Result<Frame> cut = decode_cut_frame(head.first(std::min(head.size(), header_bytes)));
  expect(cut || !frame);
  if (frame) expect(cut->kind == frame->kind && cut->call() == frame->call());
  // The payload may arrive later. The result must be the same.
  expect(decode_frame(head, {}, payload.size()).has_value() == frame.has_value());
  if (!frame) return expect(frame.error().code == ErrorCode::protocol_error && !frame.error().text.empty());
  expect(header_bytes + frame->metadata.size() + frame->body.size() == head.size());
  expect(frame->payload.size() + frame->attachment.size() == payload.size());
  visit(*frame, [&](const auto& fields) { check_fields(*frame, fields); });
  static_cast<void>(checksum_matches(head, payload));
  check_metadata_entries(frame->metadata);
}

void check_hello(Bytes bytes) {
  const Result<Hello> hello = decode_hello(bytes);
  if (!hello) return expect(hello.error().code == ErrorCode::protocol_error && !hello.error().text.empty());
  Hello bounded = *hello;
  if (bounded.refusal && bounded.refusal->text.size() > refusal_text_bytes_max) {
    bounded.refusal->text.resize(refusal_text_bytes_max);
  }
  const Result<Hello> again = decode_hello(encode_hello(bounded));
  expect(again && *again == bounded);
}

// Returns a separate block, so that a read beyond it is detected.
std::vector<std::byte> copy(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace
}  // namespace hawser::wire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hawser;
  if (size < 3) return 0;
  const Bytes rest = std::as_bytes(std::span(data + 3, size - 3));
  switch (data[0] % 3) {
    case 0: {
      const std::size_t payload = std::min<std::size_t>(rest.size(), data[1] | data[2] << 8);
      wire::check_frame(wire::copy(rest.first(rest.size() - payload)), wire::copy(rest.last(payload)));
      break;
    }
    case 1: wire::check_hello(wire::copy(rest)); break;
    default: wire::check_metadata_entries(wire::copy(rest)); break;
  }
  return 0;
}
