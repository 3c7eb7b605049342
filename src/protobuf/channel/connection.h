#pragma once

#include <string>
#include <utility>

#include "hawser/sync.h"
#include "protobuf/channel/site.h"

namespace hawser::pb {

// One connection of a site, of either protocol.
struct ChannelSite::Connection {
  Connection(Loop& loop, const ChannelOptions& with, CompressType compression)
      : client(loop, options_of(with, compression)) {}
  static ClientOptions options_of(const ChannelOptions& with, CompressType compression) {
    ClientOptions options = with.client;
    options.connect_timeout = std::chrono::milliseconds(with.connect_timeout_ms);
    if (with.protocol == "hawser") return options;
    return baidu_std_client({.client = std::move(options),
                             .credential = with.credential,
                             .compression = static_cast<BaiduStdCompression>(compression),
                             .compress_bytes_min = 0});
  }

  Client client;
  bool connecting = false;
  Event tried{true};  // Set unless an attempt to connect runs.
  Result<void> outcome;
};

}  // namespace hawser::pb
