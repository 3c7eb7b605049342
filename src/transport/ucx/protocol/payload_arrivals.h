#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "transport/ucx/core/ucx_core.h"

namespace hawser::transport::ucx {

// Matches the entries of packets that announce payloads with the active messages that bring these payloads: the entries
// and the active messages of payloads are counted alike. An active message may arrive before or after its entry. Holds
// the active messages whose payloads are not being fetched yet. No I/O.
class PayloadArrivals {
 public:
  // Most payloads that UCX has announced and that are not being fetched yet. Peers are limited to
  // UcxOptions::rendezvous_in_flight_max.
  static constexpr std::size_t waiting_max = 1024;

  // An entry announces a payload. Returns the payload's number.
  std::uint32_t announce() noexcept { return announced_++; }
  // The message of the first announced payload has been delivered, with or without the payload.
  void deliver() noexcept { ++delivered_; }
  // Payloads that are announced by messages that have not been delivered.
  std::size_t undelivered() const noexcept { return announced_ - delivered_; }

  // Records the active message of a payload. Returns false, and records nothing, if there are waiting_max of them, if
  // the message that announces it has been delivered, or if the payload waits already.
  [[nodiscard]] bool add(const UcxTarget::ActiveMessage& message) {
    if (waiting_.size() >= waiting_max) return false;
    if (static_cast<std::int32_t>(message.header.index - delivered_) < 0) return false;
    return waiting_.try_emplace(message.header.index, message).second;
  }
  // Null if the active message of this payload has not arrived, or was removed.
  const UcxTarget::ActiveMessage* find(std::uint32_t number) const noexcept {
    const auto found = waiting_.find(number);
    return found == waiting_.end() ? nullptr : &found->second;
  }
  // Removes an active message that find() has found. UCX's description of the payload belongs to the caller then.
  UcxTarget::ActiveMessage remove(std::uint32_t number) noexcept {
    const auto found = waiting_.find(number);
    const UcxTarget::ActiveMessage message = found->second;
    waiting_.erase(found);
    return message;
  }
  // Removes all and calls release(UcxTarget::ActiveMessage&) for each.
  template <class Release>
  void clear(Release release) noexcept {
    for (auto& [number, message] : waiting_) release(message);
    waiting_.clear();
  }

 private:
  std::map<std::uint32_t, UcxTarget::ActiveMessage> waiting_;  // By number.
  std::uint32_t announced_ = 0;
  std::uint32_t delivered_ = 0;
};

}  // namespace hawser::transport::ucx
