#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "tests/baidu_std/fixture.h"

// Tools for tests of the library's own client of baidu_std.
namespace hawser::protocol::baidu_std {

inline RawMessage raw(std::string_view text) { return {std::string(text)}; }

using Script = Task<void> (*)(BaiduStdClient&);

inline Task<void> connect_and_run(std::string address, BaiduStdClientOptions options, Script script) {
  BaiduStdClient client(std::move(options));
  auto connected = co_await client.connect(std::move(address));
  REQUIRE_OK(connected);
  co_await script(client);
}
inline void with_client(const std::string& address, const BaiduStdClientOptions& options, Script script) {
  sync_wait(connect_and_run(address, options, script));
}

inline Octets reply_frame(const RpcMeta& meta, std::string_view data, const Metadata& fields = {}) {
  const std::size_t size = meta_bytes(meta, &fields);
  Octets bytes(FrameHeader::bytes + size);
  write_header(bytes.data(), {BaiduStdFrameKind::rpc, static_cast<std::uint32_t>(size + data.size()),
                              static_cast<std::uint32_t>(size)});
  write_meta(bytes.data() + FrameHeader::bytes, meta, &fields);
  return bytes + octets(data);
}

}  // namespace hawser::protocol::baidu_std
