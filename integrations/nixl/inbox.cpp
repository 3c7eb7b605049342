#include "inbox.h"

namespace hawser::nixl {

Result<void> Inbox::notify(std::string agent, std::vector<std::string> messages) {
  std::size_t bytes = 0;
  for (const std::string& message : messages) bytes += agent.size() + message.size();
  const std::lock_guard lock(mutex_);
  if (arrived_.size() + messages.size() > messages_max || bytes_ + bytes > bytes_max) {
    return fail(ErrorCode::overloaded, std::to_string(arrived_.size()) + " notifications of " + std::to_string(bytes_) +
                                           " bytes wait (limits: " + std::to_string(messages_max) + " and " +
                                           std::to_string(bytes_max) + " bytes): call getNotifs() more often");
  }
  bytes_ += bytes;
  for (std::string& message : messages) arrived_.emplace_back(agent, std::move(message));
  return {};
}

std::vector<Inbox::Notification> Inbox::take() {
  const std::lock_guard lock(mutex_);
  bytes_ = 0;
  return std::exchange(arrived_, {});
}

}  // namespace hawser::nixl
