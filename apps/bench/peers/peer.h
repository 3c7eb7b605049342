#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

// What a peer's program implements; peer_main.cpp does the rest. In C++17, for some peers' headers are no later C++.
namespace hawser::bench {

// Calls to keep in flight, by as many callers, on as many connections: all on one, or each on its own. Any thread.
class PeerLoad {
 public:
  virtual ~PeerLoad() = default;

  virtual const std::string& address() const noexcept = 0;
  virtual unsigned callers() const noexcept = 0;
  virtual unsigned connections() const noexcept = 0;
  virtual bool ack() const noexcept = 0;  // Ask for 16 bytes instead of the payload.
  // What a caller sends; valid to the end.
  virtual std::string_view payload(std::size_t caller) const noexcept = 0;

  // A caller begins a call.
  virtual void begin(std::size_t caller) noexcept = 0;
  // Its reply has come; whether to make another call.
  virtual bool end(std::size_t caller, std::string_view reply) = 0;
  virtual bool end(std::size_t caller, std::uint64_t bytes, std::uint64_t head) = 0;
  virtual void fail(const std::string& text) = 0;
};

// What the server replies if it is asked for 16 bytes.
struct PeerAck {
  std::uint64_t bytes = 0;
  std::uint64_t head = 0;
};
PeerAck peer_ack_of(std::string_view payload) noexcept;

std::string_view peer_name() noexcept;
// Serves at a free port of the loopback address, and says which, until it is killed.
void serve_peer(const std::function<void(const std::string& address)>& listening);
// Makes calls until every caller was told to stop. If it returns before, or throws, the server was lost.
void call_peer(PeerLoad& load);

}  // namespace hawser::bench
