#include "negotiate/attached_transports.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "base/what_of.h"
#include "hawser/loop.h"
#include "transport/common/sealed_connection.h"
#include "wire/hello.h"

namespace hawser::negotiate {

static_assert(transport::transport_offer_bytes_max == wire::transport_offer_bytes_max);
static_assert(transport::transport_parameters_bytes_max == wire::transport_parameters_bytes_max);

static_assert(transport::SealedConnection::overhead_bytes == protection_bytes);

transport::MessageLimits message_limits(const Agreement& agreed) noexcept {
  return {.send_bytes_max = agreed.send_bytes_max,
          .receive_bytes_max = agreed.receive_bytes_max,
          .protected_messages = agreed.protects_messages()};
}

std::vector<std::string_view> AttachedTransports::names() const {
  std::vector<std::string_view> all;
  for (const auto& transport : transports_) all.push_back(transport->name());
  return all;
}

void AttachedTransports::attach() {
  const bool first = attached_.empty();
  // Searching for devices takes longer than a handshake.
  const bool all = first || loop_.now() - tried_ >= retry_min_;
  if (first) {
    std::vector<Entry> entries;
    for (const auto& transport : transports_) entries.push_back({.name = transport->name()});
    attached_ = std::move(entries);  // All entries exist from now on, even if an exception ends this function.
  }
  if (all) tried_ = loop_.now();
  for (std::size_t i = 0; i < transports_.size(); ++i) {
    Entry& transport = attached_[i];
    if (!all && !transport.untried) continue;
    if (transport.worker != nullptr && transport.worker->usable()) continue;
    transport.untried = true;
    // The worker is released first, so that a device that was removed can be closed. Connections keep what they need.
    transport.worker.reset();
    Result<std::shared_ptr<transport::TransportWorker>> worker = attach_one(*transports_[i], transport);
    if (worker) {
      transport.worker = std::move(*worker);
      continue;
    }
    transport.reason = std::move(worker.error().text);
    if (first) loop_.log(LogLevel::warning, "rpc", std::string(transport.name) + " can't be used: " + transport.reason);
  }
}

// An exception of one transport must not prevent the use of the others.
Result<std::shared_ptr<transport::TransportWorker>> AttachedTransports::attach_one(transport::Transport& transport,
                                                                                   Entry& entry) {
  try {
    Result<std::shared_ptr<transport::TransportWorker>> worker = transport.attach(loop_);
    entry.untried = false;
    return worker;
  } catch (const std::bad_alloc&) {
    return fail(Error::of_transport(ErrorCode::overloaded, "out of memory"));
  } catch (const std::exception& error) {
    entry.untried = false;
    return fail(Error::of_transport(ErrorCode::unavailable, "an exception: " + std::string(what_of(error))));
  }
}

const AttachedTransports::Entry* AttachedTransports::find(std::string_view name) const noexcept {
  const auto at =
      std::find_if(attached_.begin(), attached_.end(), [&](const Entry& transport) { return transport.name == name; });
  return at == attached_.end() ? nullptr : &*at;
}

}  // namespace hawser::negotiate
