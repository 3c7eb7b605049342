#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"
#include "hawser/server.h"
#include "hawser/time.h"

// Changes options of a running server. docs/operations.md, "Options", lists the options that can be changed and when a
// change takes effect. The page /options shows them, and changes them by POST.
//
//   hawser::change_option(server, &hawser::ServerOptions::calls_max, 20'000, "the autoscaler");
//   hawser::change_option(server, "calls_max", "20000", "the autoscaler");
namespace hawser {

// A longer value is refused. A longer text that says who changes the option is cut.
inline constexpr std::size_t option_value_bytes_max = 1024;
inline constexpr std::size_t option_changer_bytes_max = 256;

// Changes one option. `name` is that of a member of ServerOptions, such as "calls_max" or "loop.blocked_max", or of an
// option of add_option(). `value` is a number ("1000", "64KiB", "8MiB", "1GiB"), a duration with its unit ("500ms",
// "10s", "5min"; ns, us, ms, s, min, h, or "forever"), or "true" or "false". `by` says who changes it, for the log and
// the page.
// Fails with invalid_argument, which names option, value and limit, if the option is unknown or cannot be changed while
// the server runs, if start() would refuse the value together with the other options, or if the value would make the
// server refuse all connections or calls. Nothing has changed then. Fails with limit_exceeded if memory is exhausted:
// the option has changed then, and some loops may still use the previous value. Change it again.
// The change is logged at level info by the component "audit". Each loop of the server applies the value in its next
// tick, so calls that run meanwhile may use either value. Changes have the same order on all loops. Before the start of
// the server, the loops begin with the value. Any thread, between the constructor and the destructor of the server.
Result<void> change_option(Server& server, std::string_view name, std::string_view value,
                           std::string_view by = "the program");
// The same for members of ServerOptions and of ServerOptions::loop; the compiler checks the type of the value.
Result<void> change_option(Server& server, std::size_t ServerOptions::* option, std::size_t value,
                           std::string_view by = "the program");
Result<void> change_option(Server& server, std::uint32_t ServerOptions::* option, std::uint32_t value,
                           std::string_view by = "the program");
Result<void> change_option(Server& server, Duration ServerOptions::* option, Duration value,
                           std::string_view by = "the program");
Result<void> change_option(Server& server, bool ServerOptions::* option, bool value,
                           std::string_view by = "the program");
Result<void> change_option(Server& server, Duration LoopOptions::* option, Duration value,
                           std::string_view by = "the program");

// An option of the application, or of a component, that can be changed while the server runs.
struct OwnOption {
  std::string name;   // 1 to 128 letters, digits and "._-", with a dot, such as "shop.discount_percent".
  std::string value;  // The value at the start, for people: the default. At most option_value_bytes_max bytes.
  // Checks a new value and applies it. An error or an exception refuses the value; the operator receives its text.
  // Called on the thread that changes the option, which is a loop if a client of the page changes it: it must not
  // block. Called by one thread at a time. It must not change or list options: a change within it is refused. What it
  // refers to must live as long as the server.
  std::function<Result<void>(std::string_view value)> change;
  // Returns the value in use, if something else can change it too. Called on any thread; must not block. Empty
  // function: the value is the last one that was set.
  std::function<std::string()> read = {};
};
// Throws std::logic_error if the name is in use or has another form, or if `change` is empty. At most own_options_max
// options. Any thread.
inline constexpr std::size_t own_options_max = 256;
void add_option(Server& server, OwnOption option);

struct OptionState {
  std::string name;
  std::string value;     // In the form that change_option() accepts.
  std::string standard;  // The default.
  // "default", "the program", or "changed at 2026-11-26T12:00:00Z by ...".
  std::string origin;
};
// The options that can be changed, with their values: those of ServerOptions in the order of their declaration, then
// those of add_option(). Loops may not have taken the latest values yet. Any thread.
std::vector<OptionState> changeable_options(const Server& server);

}  // namespace hawser
