#include <algorithm>
#include <bit>
#include <chrono>
#include <exception>
#include <string>
#include <string_view>

#include "base/decimal_text.h"
#include "exec/loop_work.h"
#include "heap/block_pool.h"
#include "rpc/port/port_protocol.h"
#include "rpc/server/server_loop.h"
#include "transport/common/framed_connection.h"
#include "transport/common/payload_buffer.h"
#include "wire/message.h"

namespace hawser::rpc {
namespace {

// All connections of a loop are checked in each window.
constexpr Duration receive_window_min = std::chrono::milliseconds(1);

// Returns the memory that one message of `bytes` uses at most: its block, rounded up to a size class; the block of the
// previous step, from which it is copied; and the blocks of its head.
std::size_t message_footprint(std::size_t bytes) noexcept {
  const auto block = [](std::size_t size) {
    return size <= BlockPool::class_bytes_max ? std::bit_ceil(std::max(size, BlockPool::class_bytes_min)) : size;
  };
  return block(bytes) + block(bytes / transport::PayloadBuffer::step_factor + 1) +
         2 * transport::FramedConnection::receive_block_bytes;
}

}  // namespace

Result<void> check_memory(const ServerOptions& options) {
  const auto contradiction = [](std::string_view small, std::size_t bytes, std::string_view large, std::size_t most) {
    return fail(ErrorCode::invalid_argument, "ServerOptions::" + std::string(small) + " (" + count_text(bytes, "byte") +
                                                 ") is less than " + std::string(large) + " (" +
                                                 count_text(most, "byte") + "): raise the one, or lower the other");
  };
  const auto out_of_range = [](std::string_view name, std::size_t is, std::string_view least) {
    return fail(ErrorCode::invalid_argument, "ServerOptions::" + std::string(name) + " (" + std::to_string(is) +
                                                 ") is less than " + std::string(least) + ": raise it");
  };
  if (options.message_bytes_max < wire::message_bytes_least) {
    return out_of_range("message_bytes_max", options.message_bytes_max,
                        std::to_string(wire::message_bytes_least) + " bytes, which a frame without a body takes");
  }
  if (options.calls_max == 0) return out_of_range("calls_max", 0, "1, without which no client may call");
  if (options.connections_max == 0) return out_of_range("connections_max", 0, "1, without which no client may connect");
  if (options.calls_per_connection_max == 0) {
    return out_of_range("calls_per_connection_max", 0, "1, without which no client may call");
  }
  if (options.ping_interval <= Duration::zero()) {
    return fail(ErrorCode::invalid_argument, "ServerOptions::ping_interval (" +
                                                 std::to_string(options.ping_interval.count()) +
                                                 " ns) is not positive: raise it, or use `forever` to send no PING");
  }
  if (options.receive_rate_min != 0 && options.receive_window > Duration::zero() &&
      options.receive_window < receive_window_min) {
    return out_of_range("receive_window", static_cast<std::size_t>(options.receive_window.count()),
                        "1000000 ns, since all connections are looked at in each window");
  }
  if (options.stream_window_bytes == 0) {
    return out_of_range("stream_window_bytes", 0, "1 byte, without which no client may send a stream item");
  }
  const std::size_t share = options.receive_share_bytes_max;
  const std::size_t peer = options.receive_peer_bytes_max;
  if (options.receive_bytes_max < options.message_bytes_max) {
    return contradiction("receive_bytes_max", options.receive_bytes_max, "message_bytes_max",
                         options.message_bytes_max);
  }
  if (peer != 0) {
    const std::size_t least = std::max(share, options.message_bytes_max);
    if (peer < least) {
      return contradiction("receive_peer_bytes_max", peer,
                           share > options.message_bytes_max ? "receive_share_bytes_max" : "message_bytes_max", least);
    }
    if (options.receive_bytes_max < peer) {
      return contradiction("receive_bytes_max", options.receive_bytes_max, "receive_peer_bytes_max", peer);
    }
  }
  if (share == 0) return {};
  if (share < options.message_bytes_max) {
    return contradiction("receive_share_bytes_max", share, "message_bytes_max", options.message_bytes_max);
  }
  if (options.receive_bytes_max < share) {
    return contradiction("receive_bytes_max", options.receive_bytes_max, "receive_share_bytes_max", share);
  }
  return {};
}

detail::ReceiveBudget make_budget(const ServerOptions& options) {
  const std::size_t least = message_footprint(options.message_bytes_max);
  const std::size_t share =
      options.receive_share_bytes_max != 0 ? options.receive_share_bytes_max : options.receive_bytes_max / 4;
  const std::size_t peer =
      options.receive_peer_bytes_max != 0 ? options.receive_peer_bytes_max : options.receive_bytes_max / 2;
  return detail::ReceiveBudget(std::max(options.receive_bytes_max, least), std::max(share, least),
                               std::max({peer, share, least}));
}

// ---- Options that change ----

void ServerLoop::request_options() {
  if (options_wanted_.exchange(true)) return;
  try {
    inspect([](ServerLoop& loop) { loop.take_options(); });
  } catch (...) {
    options_wanted_.store(false);
    throw;
  }
}

void ServerLoop::take_options() {
  options_wanted_.store(false);  // A change after this posts again.
  const Duration blocked_max = options_.loop.blocked_max;
  const Duration window = options_.receive_window;
  const std::size_t rate = options_.receive_rate_min;
  const std::size_t backlog = options_.send_backlog_bytes_max;
  const Duration ping_interval = options_.ping_interval;
  const std::uint64_t number = shared_.live.take(options_);
  // A loop of the caller keeps its own value until this one is changed.
  if (options_.loop.blocked_max != blocked_max) detail::LoopWork::set_blocked_max(loop_, options_.loop.blocked_max);
  if (options_.receive_window != window || options_.receive_rate_min != rate) {
    sweep_.stop();
    if (!sessions_.empty()) start_sweep();
  }
  if (options_.send_backlog_bytes_max != backlog || options_.ping_interval != ping_interval) {
    for (const auto& session : sessions_) {
      try {
        session->options_changed();
      } catch (const std::exception& error) {
        handshakes_.log_dropped(error);
        session->abort(stopped_);
      }
    }
  }
  options_taken_.store(number, std::memory_order_release);
}

std::string alpn_names(const ProtocolList& protocols) {
  std::string names;
  const auto add = [&names](std::string_view name) {
    if (!name.empty()) names.append(1, static_cast<char>(name.size())).append(name);
  };
  // HTTP/2 is first: it carries gRPC and the requests of HTTP. Clients that can use gRPC offer HTTP/1.1 too.
  for (const auto& protocol : protocols) {
    if (protocol->alpn() == "h2") add("h2");
  }
  for (const auto& protocol : protocols) {
    if (protocol->alpn() != "h2") add(protocol->alpn());
  }
  add(negotiate::native_alpn);
  return names;
}

}  // namespace hawser::rpc
