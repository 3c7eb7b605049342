#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "hawser/change_option.h"

namespace hawser::rpc {

// Refers to an option that can be changed.
using OptionMember = std::variant<std::size_t ServerOptions::*, std::uint32_t ServerOptions::*,
                                  Duration ServerOptions::*, bool ServerOptions::*, Duration LoopOptions::*>;

// The text of a value, in the form that change_option() accepts.
std::string option_text(std::uint64_t value);
std::string option_text(std::uint32_t value);
std::string option_text(bool value);
std::string option_text(Duration value);
// The value of such a text; empty if it has another form.
std::optional<Duration> duration_of(std::string_view text) noexcept;

// The options of a running server that can be changed. Any thread.
class LiveOptions {
 public:
  explicit LiveOptions(const ServerOptions& given) : given_(given), now_(given) {}
  LiveOptions(const LiveOptions&) = delete;
  LiveOptions& operator=(const LiveOptions&) = delete;

  struct Done {
    std::string line;          // Describes the change, for the log.
    bool for_loops = false;    // The loops must take() it.
    std::uint64_t number = 0;  // Numbers the changes for the loops, from 1 on.
  };
  // See change_option().
  Result<Done> change(std::string_view name, std::string_view value, std::string_view by);
  void add(OwnOption option);
  std::vector<OptionState> list() const;
  // Returns the name of an option that can be changed; empty if that one cannot.
  static std::string_view name_of(const OptionMember& member) noexcept;

  // True for a member of ServerOptions.
  static bool is_of_server(std::string_view name) noexcept;

  // Writes the current values into the options of a loop, and returns the number of the last change among them.
  std::uint64_t take(ServerOptions& to) const;
  // The number of the last change that loops take.
  std::uint64_t number() const;

 private:
  struct Set {
    std::chrono::system_clock::time_point at;
    std::string by;
  };
  struct Own {
    OwnOption option;
    std::string value;
  };

  Result<Done> change_own(std::string_view name, std::string_view value, std::string_view by);
  Result<Done> change_server(std::string_view name, std::string_view value, std::string_view by);
  void remember(std::string_view name, std::string_view by);

  const ServerOptions given_;
  std::mutex changing_;  // Held during a change, with the function of the application. Locked before values_.
  std::atomic<std::thread::id> changer_{};  // The thread that calls a function of the application.
  mutable std::mutex values_;               // Guards the next members. Held for a short time only.
  ServerOptions now_;                       // Only the members that can be changed are used.
  std::map<std::string, Set, std::less<>> set_;
  std::vector<Own> own_;
  std::uint64_t number_ = 0;
};

}  // namespace hawser::rpc
