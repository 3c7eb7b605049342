#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/interceptor.h"

namespace hawser::testing_tools {

// An interceptor that skips every call, and lists those that failed or lasted:
// "PROTOCOL METHOD: OUTCOME", where the outcome is the text of the error, or "result" with its bytes.
class SkipsAll {
 public:
  Task<Result<void>> operator()(IncomingCall&, Next next) const { return next(); }
  bool skips(MetadataView) const noexcept { return true; }
  void skipped(const SkippedCall& call) const noexcept {
    std::string line = std::string(call.protocol()) + " " + std::string(call.method()) + ": ";
    if (call.error() != nullptr) {
      line += call.error()->text;
    } else {
      line += "result of " + std::to_string(call.reply_bytes());
    }
    const std::lock_guard guard(state_->lock);
    state_->lines.push_back(std::move(line));
  }
  // The calls of this protocol that have ended since the last take().
  std::vector<std::string> take(std::string_view protocol) const {
    const std::lock_guard guard(state_->lock);
    std::vector<std::string> lines = std::exchange(state_->lines, {});
    std::erase_if(lines, [&](const std::string& line) { return !line.starts_with(std::string(protocol) + " "); });
    return lines;
  }
  // Number of calls that take() would return, of all protocols.
  std::size_t listed() const {
    const std::lock_guard guard(state_->lock);
    return state_->lines.size();
  }

 private:
  struct State {
    std::mutex lock;
    std::vector<std::string> lines;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace hawser::testing_tools
