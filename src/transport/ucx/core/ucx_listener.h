#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hawser/time.h"
#include "hawser/timer.h"
#include "transport/ucx/core/ucx_accepting_socket.h"
#include "transport/ucx/core/ucx_core.h"

namespace hawser::transport {

class UcxWorker;

// UCX's listener on a worker. Creates an endpoint for each client that connects, and passes it to the connection that
// the client's first message names. Only the thread of the worker's loop may use it.
class UcxListener {
 public:
  // Most clients that have not named a connection yet; further ones are rejected. Each may take
  // UcxOptions::wire_up_timeout.
  static constexpr std::size_t strangers_max = 1024;
  // The destructor refuses further clients, ends connections that have not completed a request (UcxAcceptingSocket),
  // and rejects requests. It destroys UCX's listener when there was nothing of these for `rest`, or after `rest_max`.
  static constexpr Duration rest = std::chrono::milliseconds(10);
  static constexpr Duration rest_max = std::chrono::seconds(5);

  // `address` has the format of UcxOptions::listener_address.
  static Result<std::unique_ptr<UcxListener>> make(UcxWorker& worker, const std::string& address);
  UcxListener(const UcxListener&) = delete;
  UcxListener& operator=(const UcxListener&) = delete;
  ~UcxListener();

  // Returns the address with the port that was bound.
  const std::string& address() const noexcept { return address_; }

  // Records that a hello for `token` has arrived over `ep`. Called from a UCX callback.
  void named(std::uint64_t token, ucp_ep_h ep) { names_.push_back({token, ep}); }
  bool any() const noexcept { return !calls_.empty() || !names_.empty(); }
  // Processes the recorded requests and hellos, and rejects clients whose time is over.
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

  explicit UcxListener(UcxWorker& worker) noexcept : worker_(worker) {}
  void stop_accepting();
  static void on_call(ucp_conn_request_h call, void* arg);

  UcxWorker& worker_;
  ucp_listener_h listener_ = nullptr;
  std::string address_;
  std::optional<UcxAcceptingSocket> socket_;
  std::vector<ucp_conn_request_h> calls_;
  std::vector<Name> names_;
  std::vector<Stranger> strangers_;  // In the order of their arrival.
  MemberTimer<&UcxListener::process> expiry_{*this};
  bool ending_ = false;
};

// A numeric address such as "10.0.0.1:4711" or "[fe80::1]:4711", in the form that UCX needs.
struct UcxSocketAddress {
  static Result<UcxSocketAddress> parse(const std::string& text);
  static std::string text(const void* address);

  std::vector<std::byte> bytes;  // A sockaddr_in or sockaddr_in6.
};

}  // namespace hawser::transport
