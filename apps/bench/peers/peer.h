#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

// Functions that a peer's program implements; peer_main.cpp does the rest. In C++17, since headers of some peers are
// not valid in later versions.
namespace hawser::bench {

// Calls to keep in flight: one for each caller. All callers share one connection, or each has its own.
class PeerLoad {
 public:
  virtual ~PeerLoad() = default;

  virtual const std::string& address() const noexcept = 0;
  virtual unsigned callers() const noexcept = 0;
  virtual unsigned connections() const noexcept = 0;
  virtual bool blocking() const noexcept = 0;  // Each caller is a thread that blocks until its call has ended.
  virtual bool ack() const noexcept = 0;       // The reply has 16 bytes instead of the payload.
  // Returns the payload that a caller sends; valid as long as this object.
  virtual std::string_view payload(std::size_t caller) const noexcept = 0;

  // Any thread may call these. A caller begins a call.
  virtual void begin(std::size_t caller) noexcept = 0;
  // The reply of the caller's call has arrived. Returns whether the caller makes another call.
  virtual bool end(std::size_t caller, std::string_view reply) = 0;
  virtual bool end(std::size_t caller, std::uint64_t bytes, std::uint64_t head) = 0;
  virtual void fail(const std::string& text) = 0;
};

// The reply of 16 bytes.
struct PeerAck {
  std::uint64_t bytes = 0;
  std::uint64_t head = 0;
};
PeerAck peer_ack_of(std::string_view payload) noexcept;

// Files in PEM format for calls within TLS. Empty: in plain text.
struct PeerTls {
  std::string ca;  // The client's: the issuer that it trusts.
  std::string certificate;
  std::string key;
};

std::string_view peer_name() noexcept;
// Serves at a free port of the loopback address until it is killed. Calls `listening` with the address.
void serve_peer(const PeerTls& tls, const std::function<void(const std::string& address)>& listening);
// Makes calls until end() has returned false for every caller. An earlier return, or an exception, means that the
// server was lost.
void call_peer(const PeerTls& tls, PeerLoad& load);

}  // namespace hawser::bench
