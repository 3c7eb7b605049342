#include "rpc/server/live_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/escaped_text.h"
#include "base/try.h"
#include "hawser/detail/send_reply.h"
#include "rpc/server/server_loop.h"

namespace hawser::rpc {
namespace {

constexpr std::size_t name_bytes_max = 128;

struct OptionEntry {
  std::string_view name;
  OptionMember member;
  // A smaller value would refuse every connection, also the one that could take the change back.
  std::uint64_t least = 0;
};

// In the order of their declaration.
constexpr std::array entries = {
    OptionEntry{"connections_max", &ServerOptions::connections_max, 1},
    OptionEntry{"calls_per_connection_max", &ServerOptions::calls_per_connection_max, 1},
    OptionEntry{"calls_max", &ServerOptions::calls_max, 1},
    OptionEntry{"send_backlog_bytes_max", &ServerOptions::send_backlog_bytes_max},
    OptionEntry{"receive_rate_min", &ServerOptions::receive_rate_min},
    OptionEntry{"receive_window", &ServerOptions::receive_window},
    OptionEntry{"handshakes_max", &ServerOptions::handshakes_max, 1},
    OptionEntry{"stream_window_bytes", &ServerOptions::stream_window_bytes, 1},
    OptionEntry{"handshake_timeout", &ServerOptions::handshake_timeout, 1'000'000},
    OptionEntry{"ping_interval", &ServerOptions::ping_interval, 1'000'000},
    OptionEntry{"checksum", &ServerOptions::checksum},
    OptionEntry{"exception_texts", &ServerOptions::exception_texts},
    OptionEntry{"loop.blocked_max", &LoopOptions::blocked_max, 1},
};

struct OptionUnit {
  std::string_view name;
  std::uint64_t factor;
};
constexpr std::array byte_units = {OptionUnit{"GiB", 1ULL << 30}, OptionUnit{"MiB", 1ULL << 20},
                                   OptionUnit{"KiB", 1ULL << 10}};
// Descending. `forever` has no unit.
constexpr std::array time_units = {OptionUnit{"h", 3'600'000'000'000},
                                   OptionUnit{"min", 60'000'000'000},
                                   OptionUnit{"s", 1'000'000'000},
                                   OptionUnit{"ms", 1'000'000},
                                   OptionUnit{"us", 1000},
                                   OptionUnit{"ns", 1}};

auto& member_of(ServerOptions& options, auto ServerOptions::* member) { return options.*member; }
const auto& member_of(const ServerOptions& options, auto ServerOptions::* member) { return options.*member; }
auto& member_of(ServerOptions& options, auto LoopOptions::* member) { return options.loop.*member; }
const auto& member_of(const ServerOptions& options, auto LoopOptions::* member) { return options.loop.*member; }

std::string text_of(const ServerOptions& options, const OptionMember& member) {
  return std::visit([&](auto one) { return option_text(member_of(options, one)); }, member);
}

std::string in_quotes(std::string_view text) {
  std::string line = "\"";
  append_escaped(line, text, 64);
  return line + '"';
}

std::optional<std::uint64_t> parse_amount(std::string_view text, const auto& units, bool needs_unit,
                                          std::uint64_t most) noexcept {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  std::uint64_t factor = 1;
  if (!unit.empty() || needs_unit) {
    const auto found = std::ranges::find(units, unit, &OptionUnit::name);
    if (found == units.end()) return std::nullopt;
    factor = found->factor;
  }
  if (value > most / factor) return std::nullopt;
  return value * factor;
}

std::unexpected<Error> invalid(std::string text) { return fail(ErrorCode::invalid_argument, std::move(text)); }

std::unexpected<Error> unreadable(std::string_view name, std::string_view value, std::string_view form) {
  return invalid("option " + std::string(name) + ": the value " + in_quotes(value) + " is not " + std::string(form));
}

std::unexpected<Error> below(std::string_view name, std::string_view value, const std::string& least) {
  return invalid("option " + std::string(name) + ": " + std::string(value) + " is less than " + least +
                 ", the least value that a running server accepts: give more");
}

template <class Number>
Result<void> parse_into(Number& to, const OptionEntry& entry, std::string_view text) {
  constexpr std::uint64_t most = std::numeric_limits<Number>::max();
  const auto value = parse_amount(text, byte_units, false, most);
  if (!value) {
    return unreadable(entry.name, text,
                      "a number from 0 to " + std::to_string(most) + ", such as 1000, 64KiB, 8MiB or 1GiB");
  }
  if (*value < entry.least) return below(entry.name, text, option_text(entry.least));
  to = static_cast<Number>(*value);
  return {};
}

Result<void> parse_into(Duration& to, const OptionEntry& entry, std::string_view text) {
  const std::optional<Duration> value = duration_of(text);
  if (!value) {
    return unreadable(
        entry.name, text,
        "a duration of at most 292 years with its unit (ns, us, ms, s, min, h), such as 500ms, or forever");
  }
  const Duration least(static_cast<Duration::rep>(entry.least));
  if (*value < least) return below(entry.name, text, option_text(least));
  to = *value;
  return {};
}

Result<void> parse_into(bool& to, const OptionEntry& entry, std::string_view text) {
  if (text != "true" && text != "false") return unreadable(entry.name, text, "true or false");
  to = text == "true";
  return {};
}

bool is_own_name(std::string_view name) noexcept {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= name_bytes_max && name.find('.') != std::string_view::npos &&
         std::ranges::all_of(name, allowed);
}

const OptionEntry* find(std::string_view name) noexcept {
  const auto found = std::ranges::find(entries, name, &OptionEntry::name);
  return found == entries.end() ? nullptr : &*found;
}

std::string time_text(std::chrono::system_clock::time_point at) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(at);
  std::tm parts{};
  std::array<char, 32> text{};
  gmtime_r(&seconds, &parts);
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string changed_line(std::string_view name, std::string_view before, std::string_view now, std::string_view by) {
  return "option " + std::string(name) + " changed from " + in_quotes(before) + " to " + in_quotes(now) + " by " +
         std::string(by);
}

}  // namespace

std::string option_text(std::uint64_t value) { return std::to_string(value); }
std::string option_text(std::uint32_t value) { return std::to_string(value); }
std::string option_text(bool value) { return value ? "true" : "false"; }
std::string option_text(Duration value) {
  if (value == forever) return "forever";
  if (value <= Duration::zero()) return std::to_string(value.count()) + (value == Duration::zero() ? "s" : "ns");
  const auto count = static_cast<std::uint64_t>(value.count());
  const auto unit =
      std::ranges::find_if(time_units, [count](const OptionUnit& one) { return count % one.factor == 0; });
  return std::to_string(count / unit->factor) + std::string(unit->name);
}

std::optional<Duration> duration_of(std::string_view text) noexcept {
  if (text == "forever") return forever;
  constexpr auto most = static_cast<std::uint64_t>(Duration::max().count() - 1);
  const auto value = parse_amount(text, time_units, true, most);
  if (!value) return std::nullopt;
  return Duration(static_cast<Duration::rep>(*value));
}

std::string_view LiveOptions::name_of(const OptionMember& member) noexcept {
  const auto found = std::ranges::find(entries, member, &OptionEntry::member);
  return found == entries.end() ? std::string_view() : found->name;
}

bool LiveOptions::is_of_server(std::string_view name) noexcept { return find(name) != nullptr; }

Result<LiveOptions::Done> LiveOptions::change(std::string_view name, std::string_view value, std::string_view by) {
  std::string who;
  append_escaped(who, by, option_changer_bytes_max);
  if (value.size() > option_value_bytes_max) {
    return invalid("option " + in_quotes(name) + ": the value has " + std::to_string(value.size()) +
                   " bytes, which is more than " + std::to_string(option_value_bytes_max) + ": shorten it");
  }
  if (changer_.load() == std::this_thread::get_id()) {
    return invalid("option " + in_quotes(name) + " was changed within OwnOption::change: change it after that");
  }
  const std::lock_guard guard(changing_);
  return find(name) != nullptr ? change_server(name, value, who) : change_own(name, value, who);
}

Result<LiveOptions::Done> LiveOptions::change_server(std::string_view name, std::string_view value,
                                                     std::string_view by) {
  const OptionEntry& entry = *find(name);
  ServerOptions wanted = given_;
  {
    const std::lock_guard guard(values_);
    wanted = now_;
  }
  const std::string before = text_of(wanted, entry.member);
  const Result<void> parsed =
      std::visit([&](auto one) { return parse_into(member_of(wanted, one), entry, value); }, entry.member);
  TRY(parsed);
  TRY(check_memory(wanted));
  Done done{.line = changed_line(name, before, text_of(wanted, entry.member), by), .for_loops = true};
  const std::lock_guard guard(values_);
  remember(name, by);
  std::visit([&](auto one) { member_of(now_, one) = member_of(wanted, one); }, entry.member);
  done.number = ++number_;
  return done;
}

Result<LiveOptions::Done> LiveOptions::change_own(std::string_view name, std::string_view value, std::string_view by) {
  std::string before;
  std::size_t at = 0;
  OwnOption option;
  {
    const std::lock_guard guard(values_);
    const auto found = std::ranges::find_if(own_, [&](const Own& one) { return one.option.name == name; });
    if (found == own_.end()) {
      return invalid("option " + in_quotes(name) +
                     " is unknown, or cannot be changed while the server runs: /options and changeable_options() list "
                     "those that can be changed");
    }
    at = static_cast<std::size_t>(found - own_.begin());  // Options are never removed.
    before = found->value;
    option = found->option;
  }
  struct Changer {
    explicit Changer(std::atomic<std::thread::id>& of) : changer(of) { changer.store(std::this_thread::get_id()); }
    Changer(const Changer&) = delete;
    Changer& operator=(const Changer&) = delete;
    ~Changer() { changer.store({}); }
    std::atomic<std::thread::id>& changer;
  };
  Result<void> accepted;
  try {
    const Changer changer(changer_);
    if (option.read) before = option.read();
    accepted = option.change(value);
  } catch (...) {
    accepted = fail(ErrorCode::internal, "its function threw an exception: " + detail::exception_text());
  }
  if (!accepted) {
    return fail(ErrorCode::invalid_argument,
                "option " + option.name + ": the value " + in_quotes(value) + " is refused: " + accepted.error().text);
  }
  Done done{.line = changed_line(name, before, value, by)};
  const std::lock_guard guard(values_);
  own_[at].value = value;
  remember(name, by);
  return done;
}

void LiveOptions::remember(std::string_view name, std::string_view by) {
  set_.insert_or_assign(std::string(name), Set{std::chrono::system_clock::now(), std::string(by)});
}

void LiveOptions::add(OwnOption option) {
  if (!is_own_name(option.name)) {
    throw std::logic_error("hawser: add_option(): a name has 1 to " + std::to_string(name_bytes_max) +
                           " letters, digits, '.', '_' and '-', with a dot; this one is " + in_quotes(option.name));
  }
  if (!option.change) {
    throw std::logic_error("hawser: add_option(): " + option.name + " has no function OwnOption::change");
  }
  if (option.value.size() > option_value_bytes_max) {
    throw std::logic_error("hawser: add_option(): the value of " + option.name + " has more than " +
                           std::to_string(option_value_bytes_max) + " bytes");
  }
  const std::lock_guard guard(values_);
  if (own_.size() == own_options_max) {
    throw std::logic_error("hawser: add_option(): there are own_options_max (" + std::to_string(own_options_max) +
                           ") options already");
  }
  const auto same = [&](const Own& one) { return one.option.name == option.name; };
  if (find(option.name) != nullptr || std::ranges::any_of(own_, same)) {
    throw std::logic_error("hawser: add_option(): there is an option " + option.name + " already");
  }
  std::string value = option.value;
  own_.push_back({std::move(option), std::move(value)});
}

std::vector<OptionState> LiveOptions::list() const {
  const ServerOptions standard;
  std::vector<OptionState> all;
  std::vector<std::function<std::string()>> reads;
  {
    const std::lock_guard guard(values_);
    const auto origin = [&](std::string_view name, std::string_view otherwise) {
      const auto found = set_.find(name);
      if (found == set_.end()) return std::string(otherwise);
      return "changed at " + time_text(found->second.at) + " by " + found->second.by;
    };
    for (const OptionEntry& entry : entries) {
      std::string value = text_of(now_, entry.member);
      std::string before = text_of(standard, entry.member);
      std::string from = origin(entry.name, value == before ? "default" : "the program");
      all.push_back({std::string(entry.name), std::move(value), std::move(before), std::move(from)});
    }
    for (const Own& one : own_) {
      all.push_back({one.option.name, one.value, one.option.value, origin(one.option.name, "default")});
      reads.push_back(one.option.read);
    }
  }
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (!reads[i]) continue;
    OptionState& state = all[entries.size() + i];
    std::string value;
    try {
      value = reads[i]();
    } catch (...) {
      value = "(not known: OwnOption::read threw an exception: " + detail::exception_text() + ")";
    }
    if (value != state.value) state.origin = "the program";
    state.value = std::move(value);
  }
  return all;
}

std::uint64_t LiveOptions::number() const {
  const std::lock_guard guard(values_);
  return number_;
}

std::uint64_t LiveOptions::take(ServerOptions& to) const {
  const std::lock_guard guard(values_);
  for (const OptionEntry& entry : entries) {
    std::visit([&](auto one) { member_of(to, one) = member_of(now_, one); }, entry.member);
  }
  return number_;
}

}  // namespace hawser::rpc
