#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hawser/time.h"
#include "hawser/timer.h"
#include "transport/ucx/core/ucx_core.h"

namespace hawser::transport {

class UcxWorker;

// UCX's own listener on a worker: makes endpoints for those who call, and gives each to the connection that its first
// message names. Belongs to the worker's loop.
class UcxListener {
 public:
  // Callers who have not named a connection yet, and may wait for UcxOptions::wire_up_timeout; more are turned away.
  static constexpr std::size_t strangers_max = 1024;
  // The end waits so long for calls that are half made: UCX before 1.14 crashes if they come in afterwards (its commit
  // 95ba53abf8).
  static constexpr Duration rest = std::chrono::milliseconds(10);

  // `address` as UcxOptions::listener_address.
  static Result<std::unique_ptr<UcxListener>> make(UcxWorker& worker, const std::string& address);
  UcxListener(const UcxListener&) = delete;
  UcxListener& operator=(const UcxListener&) = delete;
  ~UcxListener();

  // With the port that was really taken.
  const std::string& address() const noexcept { return address_; }

  // Within UCX: a hello for `token` has come over `ep`.
  void named(std::uint64_t token, ucp_ep_h ep) { names_.push_back({token, ep}); }
  bool any() const noexcept { return !calls_.empty() || !names_.empty(); }
  // What was recorded within UCX, and callers who have waited for too long.
  void process();
  std::size_t strangers() const noexcept { return strangers_.size(); }

 private:
  struct Stranger {
    std::unique_ptr<UcxEndpoint> endpoint;
    Time until;
  };
  struct Name {
    std::uint64_t token = 0;
    ucp_ep_h ep = nullptr;
  };

  struct Expiry final : Timer {
    explicit Expiry(UcxListener& owner) noexcept : Timer(&Expiry::fire), listener(owner) {}
    static void fire(Timer& timer) noexcept { static_cast<Expiry&>(timer).listener.process(); }
    UcxListener& listener;
  };

  explicit UcxListener(UcxWorker& worker) noexcept : worker_(worker) {}
  static void on_call(ucp_conn_request_h call, void* arg);

  UcxWorker& worker_;
  ucp_listener_h listener_ = nullptr;
  std::string address_;
  std::vector<ucp_conn_request_h> calls_;
  std::vector<Name> names_;
  std::vector<Stranger> strangers_;  // As they came.
  Expiry expiry_{*this};
  bool ending_ = false;
};

// An address in digits, such as "10.0.0.1:4711" or "[fe80::1]:4711", for UCX.
struct UcxSocketAddress {
  static Result<UcxSocketAddress> parse(const std::string& text);
  static std::string text(const void* address);

  std::vector<std::byte> bytes;  // A struct sockaddr of its kind.
};

}  // namespace hawser::transport
