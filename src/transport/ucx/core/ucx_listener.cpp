#include "transport/ucx/core/ucx_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <cstring>
#include <utility>

#include "base/try.h"
#include "transport/ucx/core/ucx_worker.h"

namespace hawser::transport {

Result<UcxSocketAddress> UcxSocketAddress::parse(const std::string& text) {
  const auto wrong = [&] {
    return fail(Error::of_transport(
        ErrorCode::invalid_argument,
        "'" + text + "' is not an address for UCX's listener: give digits, as 10.0.0.1:0 or [fe80::1]:0"));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return wrong();
  unsigned port = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc() || stop != end || port > 65535) return wrong();
  std::string host = text.substr(0, colon);
  UcxSocketAddress parsed;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<std::uint16_t>(port));
    if (::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &address.sin6_addr) != 1) return wrong();
    parsed.bytes.resize(sizeof address);
    std::memcpy(parsed.bytes.data(), &address, sizeof address);
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return wrong();
    parsed.bytes.resize(sizeof address);
    std::memcpy(parsed.bytes.data(), &address, sizeof address);
  }
  return parsed;
}

std::string UcxSocketAddress::text(const void* address) {
  char host[INET6_ADDRSTRLEN] = "";
  if (static_cast<const sockaddr*>(address)->sa_family == AF_INET6) {
    const auto& of = *static_cast<const sockaddr_in6*>(address);
    ::inet_ntop(AF_INET6, &of.sin6_addr, host, sizeof host);
    return "[" + std::string(host) + "]:" + std::to_string(ntohs(of.sin6_port));
  }
  const auto& of = *static_cast<const sockaddr_in*>(address);
  ::inet_ntop(AF_INET, &of.sin_addr, host, sizeof host);
  return std::string(host) + ":" + std::to_string(ntohs(of.sin_port));
}

Result<std::unique_ptr<UcxListener>> UcxListener::make(UcxWorker& worker, const std::string& address) {
  TRY(const UcxSocketAddress& at, UcxSocketAddress::parse(address));
  const UcpLibrary& ucp = worker.core().ucp();
  std::unique_ptr<UcxListener> listener(new UcxListener(worker));
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {.addr = reinterpret_cast<const sockaddr*>(at.bytes.data()),
                     .addrlen = static_cast<socklen_t>(at.bytes.size())};
  params.conn_handler = {.cb = &UcxListener::on_call, .arg = listener.get()};
  if (const ucs_status_t status = ucp.listener_create(worker.core().get(), &params, &listener->listener_);
      status != UCS_OK) {
    return fail(
        ucx_error(ucp, "listening on " + address + " (UcxOptions::listener_address)", status, ErrorScope::transport));
  }
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (const ucs_status_t status = ucp.listener_query(listener->listener_, &attributes); status != UCS_OK) {
    return fail(ucx_error(ucp, "asking UCX's listener for its address", status, ErrorScope::transport));
  }
  listener->address_ = UcxSocketAddress::text(&attributes.sockaddr);
  listener->socket_.emplace(attributes.sockaddr);
  return listener;
}

UcxListener::~UcxListener() {
  ending_ = true;
  for (const ucp_conn_request_h call : std::exchange(calls_, {})) {
    worker_.core().ucp().listener_reject(listener_, call);
  }
  if (socket_) stop_accepting();
  for (Stranger& stranger : strangers_) worker_.close(std::move(stranger.endpoint), UcxClose::cut);
  if (listener_ != nullptr) worker_.core().ucp().listener_destroy(listener_);
}

// UCX's thread executes what follows from refuse() and cut_unanswered(), and on_call() rejects the requests that were
// complete.
void UcxListener::stop_accepting() {
  socket_->refuse();
  const auto end = std::chrono::steady_clock::now() + rest_max;
  bool quiet = false;
  while (!quiet && std::chrono::steady_clock::now() < end) {
    quiet = socket_->cut_unanswered();
    worker_.progress_until([] { return false; }, rest);
    quiet = socket_->cut_unanswered() && quiet;
  }
}

void UcxListener::on_call(ucp_conn_request_h call, void* arg) {
  UcxListener& self = *static_cast<UcxListener*>(arg);
  const bool room = self.calls_.size() + self.strangers_.size() < strangers_max;
  if (room && !self.ending_) return self.calls_.push_back(call);
  self.worker_.core().ucp().listener_reject(self.listener_, call);
}

void UcxListener::process() {
  const Time now = worker_.loop().now();
  for (const ucp_conn_request_h call : std::exchange(calls_, {})) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = call;
    Result<std::unique_ptr<UcxEndpoint>> endpoint = worker_.core().connect(params, 0);
    if (!endpoint) continue;  // UCX reports the failure to the client.
    strangers_.push_back({std::move(*endpoint), worker_.loop().after(worker_.options().wire_up_timeout)});
  }
  for (const Name& name : std::exchange(names_, {})) {
    for (Stranger& stranger : strangers_) {
      if (stranger.endpoint == nullptr || stranger.endpoint->ep != name.ep) continue;
      worker_.deliver(name.token, std::move(stranger.endpoint));
      break;
    }
  }
  std::erase_if(strangers_, [&](Stranger& stranger) {
    if (stranger.endpoint != nullptr && stranger.until > now && stranger.endpoint->failed == UCS_OK) return false;
    if (stranger.endpoint != nullptr) worker_.close(std::move(stranger.endpoint), UcxClose::cut);
    return true;
  });
  // Without the timer, clients that send nothing would be kept until the next client connects. A rejected client does
  // not cause a call of process().
  if (!strangers_.empty()) expiry_.start(worker_.loop(), strangers_.front().until);
}

}  // namespace hawser::transport
