#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "hawser/metadata.h"
#include "protocol/baidu_std/compression.h"
#include "protocol/baidu_std/frame.h"
#include "protocol/baidu_std/rpc_meta.h"

// Parses arbitrary bytes as frames of baidu_std, as RpcMeta and as StreamFrameMeta, and decompresses them. Parsed
// values must be the same after they have been written and parsed again. Input: u8 kind | the bytes.
namespace hawser::protocol::baidu_std {
namespace {

void expect(bool condition) {
  if (!condition) std::abort();
}

// Returns a separate block, so that a read beyond it is detected.
std::vector<std::byte> copy(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

void check_meta(Bytes bytes) {
  const Result<RpcMeta> meta = parse_meta(bytes);
  if (!meta) return expect(meta.error().code == ErrorCode::protocol_error && !meta.error().text.empty());
  Metadata fields;
  read_user_fields(bytes, [&](std::string_view key, std::string_view value) { fields.emplace_back(key, value); });
  expect(fields.size() == meta->user_fields);
  std::vector<std::byte> written(meta_bytes(*meta, &fields));
  std::byte* const checksum = write_meta(written.data(), *meta, &fields);
  expect(checksum + (meta->checksum_type == 0 ? 0 : checksum_bytes) == written.data() + written.size());
  const Result<RpcMeta> again = parse_meta(written);
  expect(again.has_value());
  expect(again->request == meta->request && again->response == meta->response);
  expect(again->correlation_id == meta->correlation_id && again->compress_type == meta->compress_type);
  expect(again->attachment_size == std::max(meta->attachment_size, 0));
  expect(again->authentication_data == meta->authentication_data && again->content_type == meta->content_type);
  expect(again->stream.has_value() == meta->stream.has_value() && again->user_fields == meta->user_fields);
  if (meta->stream)
    expect(again->stream->stream_id == meta->stream->stream_id && again->stream->extended == meta->stream->extended);
}

void check_stream_meta(Bytes bytes) {
  const Result<StreamFrameMeta> meta = parse_stream_meta(bytes);
  if (!meta) return expect(meta.error().code == ErrorCode::protocol_error);
  std::vector<std::byte> written(stream_meta_bytes(*meta));
  expect(write_stream_meta(written.data(), *meta) == written.data() + written.size());
  const Result<StreamFrameMeta> again = parse_stream_meta(written);
  expect(again && again->stream_id == meta->stream_id && again->type == meta->type && again->result == meta->result);
  expect(again->error_code == meta->error_code);
}

void check_frames(Bytes bytes) {
  constexpr FrameLimits limits{.frame_bytes_max = 1 << 16, .meta_bytes_max = 1 << 12};
  while (!bytes.empty()) {
    const auto header = parse_header(bytes, limits);
    // A shorter part of the same bytes is either refused for the same reason or needs more.
    const auto part = parse_header(bytes.first(1 + bytes.size() / 2), limits);
    if (header) expect(part.has_value());
    if (!header || !*header) return;
    expect((**header).meta_bytes <= (**header).body_bytes && (**header).body_bytes <= limits.frame_bytes_max);
    std::byte written[FrameHeader::bytes];
    write_header(written, **header);
    expect(as_text(written) == as_text(bytes.first(FrameHeader::bytes)));
    bytes = bytes.subspan(FrameHeader::bytes);
    if (bytes.size() < (**header).body_bytes) return;
    const std::vector<std::byte> meta = copy(bytes.first((**header).meta_bytes));
    (**header).kind == BaiduStdFrameKind::rpc ? check_meta(meta) : check_stream_meta(meta);
    bytes = bytes.subspan((**header).body_bytes);
  }
}

void check_compression(Compression type, Bytes bytes) {
  constexpr std::size_t limit = 1 << 20;
  const std::size_t most = unpacked_bytes_max(type, bytes, limit);
  const Result<Buffer> data = decompress(type, bytes, most);
  if (data) expect(data->size() <= most);
  expect(data.has_value() == decompress(type, bytes, limit).has_value());
  const Result<Buffer> packed = compress(type, bytes);
  expect(packed.has_value());
  const Result<Buffer> same = decompress(type, packed->bytes(), std::max(limit, bytes.size()));
  expect(same && same->text() == as_text(bytes));
}

}  // namespace
}  // namespace hawser::protocol::baidu_std

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hawser;
  if (size < 1) return 0;
  const std::vector<std::byte> bytes = protocol::baidu_std::copy(std::as_bytes(std::span(data + 1, size - 1)));
  switch (data[0] % 6) {
    case 0: protocol::baidu_std::check_frames(bytes); break;
    case 1: protocol::baidu_std::check_meta(bytes); break;
    case 2: protocol::baidu_std::check_stream_meta(bytes); break;
    case 3: protocol::baidu_std::check_compression(protocol::baidu_std::Compression::snappy, bytes); break;
    case 4: protocol::baidu_std::check_compression(protocol::baidu_std::Compression::gzip, bytes); break;
    default: protocol::baidu_std::check_compression(protocol::baidu_std::Compression::zlib, bytes); break;
  }
  return 0;
}
