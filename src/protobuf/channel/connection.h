#pragma once

#include <optional>
#include <string>
#include <utility>

#include "hawser/sync.h"
#include "protobuf/channel/site.h"

namespace hawser::pb {

// One connection of a site, of either protocol.
struct ChannelSite::Connection {
  Connection(Loop& loop, const ChannelOptions& with, CompressType compression) {
    ClientOptions options = with.client;
    options.connect_timeout = std::chrono::milliseconds(with.connect_timeout_ms);
    if (with.protocol == "hawser") {
      native.emplace(loop, std::move(options));
    } else {
      BaiduStdClientOptions baidu{.client = std::move(options), .credential = with.credential};
      baidu.compression = static_cast<BaiduStdCompression>(compression);
      baidu.compress_bytes_min = 0;
      baidu_std.emplace(loop, std::move(baidu));
    }
  }
  Client& caller() { return native ? *native : baidu_std->caller(); }
  Task<Result<void>> connect(const std::string& address) {
    return native ? native->connect(address) : baidu_std->connect(address);
  }

  std::optional<Client> native;
  std::optional<BaiduStdClient> baidu_std;
  bool connecting = false;
  Event tried{true};  // Set unless an attempt to connect runs.
  Result<void> outcome;
};

}  // namespace hawser::pb
