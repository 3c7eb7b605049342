#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "hawser/error.h"
#include "hawser/protocols.h"

namespace hawser {

// Options of the protocol baidu_std, which clients of bRPC speak. The bounds of ServerOptions apply as well.
struct BaiduStdOptions {
  // Verifies a client. Called once on each connection, with authentication_data of its first message (empty if it has
  // none) and the client's address. If it fails, the client is answered ERPCAUTH with the error's text and the
  // connection ends. Called on the loop's thread: it must not block. Empty: every client is accepted.
  std::function<Result<void>(std::string_view credential, std::string_view peer)> verify = {};
  // A compressed request is answered with the same compression if the result has at least this many bytes. The default
  // compresses no reply, as servers of bRPC do.
  std::size_t compress_reply_bytes_min = SIZE_MAX;
  // Bytes that a handler may write to a stream before the client has consumed them. At least 1.
  std::uint32_t stream_buffer_bytes = std::uint32_t{2} << 20;
};

// "baidu_std": the protocol of bRPC with its streams, for Server::enable(). It serves the methods whose arguments and
// result are protobuf messages. Component hawser::brpc. docs/protocols/baidu_std.md.
ProtocolSpec baidu_std(BaiduStdOptions options = {});

}  // namespace hawser
