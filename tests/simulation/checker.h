#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hawser/error.h"

namespace hawser::simulation {

// Returns the content of a request or reply: bytes that depend on the id alone, so that bytes of another call are
// detected.
std::string content(std::uint64_t id, std::size_t size);
bool is_content(std::uint64_t id, std::string_view bytes);

// Follows every call from its start to its end, and its execution by the server. Reports violations of the API's
// guarantees.
class Checker {
 public:
  // A call with a new id has begun. Exactly one of replied(), failed() and dropped() must follow.
  std::uint64_t begin(const char* kind);
  // The call may be executed more than once.
  void may_repeat(std::uint64_t id);
  // The handler of this call has begun.
  void executed(std::uint64_t id);
  void replied(std::uint64_t id);
  // `connection_lost`: the connection on which the call began has ended since.
  void failed(std::uint64_t id, const Error& error, bool connection_lost);
  // The caller has dropped the awaiter.
  void dropped(std::uint64_t id);

  // An item was written to a stream with a window of `window` bytes, or read from it.
  void item_written(std::uint64_t stream, std::size_t bytes, std::size_t window);
  void item_read(std::uint64_t stream, std::size_t bytes);

  // Memory that must not be written any more. It is filled, and checked at the end.
  void retire(std::vector<std::byte> memory);

  void expect(bool holds, std::string_view text, std::uint64_t id = 0);
  // Reports the calls that have not ended although all should have.
  void report_open();
  // Called after the last event.
  void finish();
  const std::vector<std::string>& violations() const noexcept { return violations_; }

  struct Counts {
    std::uint64_t begun = 0;
    std::uint64_t replied = 0;
    std::uint64_t failed = 0;
    std::uint64_t dropped = 0;
    std::uint64_t executed = 0;
    std::map<ErrorCode, std::uint64_t> errors;
  };
  const Counts& counts() const noexcept { return counts_; }

 private:
  enum class State : std::uint8_t { open, replied, failed, failed_unexecuted, dropped };
  struct Call {
    const char* kind;
    State state = State::open;
    unsigned executions = 0;
    bool may_repeat = false;
  };
  struct Stream {
    std::size_t written = 0;
    std::size_t read = 0;
  };
  Call* ending(std::uint64_t id, const char* how);
  void violate(std::string_view text, std::uint64_t id);

  std::vector<Call> calls_;  // The index is the id minus one.
  std::unordered_map<std::uint64_t, Stream> streams_;
  std::vector<std::vector<std::byte>> retired_;
  std::vector<std::string> violations_;
  Counts counts_;
};

// Marks a call as dropped unless it has ended.
class CallGuard {
 public:
  CallGuard(Checker& checker, const char* kind) : id(checker.begin(kind)), checker_(checker) {}
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;
  ~CallGuard() {
    if (!ended_) checker_.dropped(id);
  }
  void replied() {
    ended_ = true;
    checker_.replied(id);
  }
  void failed(const Error& error, bool connection_lost) {
    ended_ = true;
    checker_.failed(id, error, connection_lost);
  }

  const std::uint64_t id;

 private:
  Checker& checker_;
  bool ended_ = false;
};

}  // namespace hawser::simulation
