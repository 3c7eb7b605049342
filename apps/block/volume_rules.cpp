#include "block/volume_rules.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <fstream>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace hawser::block {
namespace {

constexpr std::size_t rules_bytes_max = 1 << 20;
constexpr std::string_view spaces = " \t\r";
constexpr std::array<std::string_view, 3> access_names = {"read", "write", "manage"};

std::string_view without_spaces(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(spaces), text.size()));
  return text.substr(0, text.find_last_not_of(spaces) + 1);
}

// Removes the first word of `text` and the spaces behind it.
std::string_view take_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find_first_of(spaces));
  text = without_spaces(text.substr(word.size()));
  return word;
}

std::unexpected<Error> wrong_rule(std::string text) { return fail(ErrorCode::invalid_argument, std::move(text)); }

std::string name_of_rule(VolumeAccess access, std::string_view volume) {
  return std::string(access_names.at(static_cast<std::size_t>(access))) + '/' + std::string(volume);
}

Result<Who> parse_who(std::string_view text) {
  const std::string_view kind = take_word(text);
  const std::string name(text);
  if (kind == "anyone" && name.empty()) return anyone();
  if (kind == "authenticated" && name.empty()) return authenticated();
  if (kind == "certificate") return certificate_subject(name);
  if (kind == "spiffe") return spiffe(name);
  if (kind == "uid" || kind == "gid") {
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error != std::errc() || end != name.data() + name.size() || name.empty()) {
      return wrong_rule("\"" + name + "\" is not the number of a user or group");
    }
    return kind == "uid" ? uid(number) : gid(number);
  }
  return wrong_rule("\"" + std::string(kind) +
                    "\" is not a kind of client: write anyone, authenticated, uid NUMBER, gid NUMBER, certificate "
                    "SUBJECT or spiffe ID");
}

}  // namespace

// The methods of the rules are "read/NAME", "write/NAME" and "manage/NAME".
struct VolumeRules::Current {
  // There are no rules. Each request asks, so that the usual server answers without the lock.
  std::atomic<bool> open = true;
  mutable std::mutex mutex;
  Authorization rules;  // Guarded by mutex. A copy of it costs a reference.
};

VolumeRules::VolumeRules() : current_(std::make_shared<Current>()) {}

Authorization VolumeRules::current() const {
  const std::lock_guard lock(current_->mutex);
  return current_->rules;
}

Result<void> VolumeRules::reload(const std::string& file) {
  const Result<VolumeRules> newer = load(file);
  if (!newer) return std::unexpected(newer.error());
  Authorization rules = newer->current();
  const std::lock_guard lock(current_->mutex);
  std::swap(current_->rules, rules);
  current_->open = false;
  return {};
}

Result<VolumeRules> VolumeRules::load_if_given(const std::string& file) {
  return file.empty() ? VolumeRules{} : load(file);
}

// VOLUMES ACCESS WHO
Result<void> VolumeRules::add(Authorization& rules, std::string_view line) {
  const std::string_view volumes = take_word(line);
  const std::string_view access = take_word(line);
  const auto* const found = std::ranges::find(access_names, access);
  if (found == access_names.end()) {
    return wrong_rule("\"" + std::string(access) + "\" is not an access: write read, write or manage");
  }
  try {
    const Result<Who> who = parse_who(line);
    if (!who) return std::unexpected(who.error());
    for (const auto* name = access_names.begin(); name <= found; ++name) {
      rules.allow(name_of_rule(static_cast<VolumeAccess>(name - access_names.begin()), volumes), *who);
    }
  } catch (const std::invalid_argument& error) {
    return wrong_rule(error.what());
  }
  return {};
}

Result<VolumeRules> VolumeRules::parse(std::string_view text) {
  VolumeRules parsed;
  Authorization& rules = parsed.current_->rules;
  parsed.current_->open = false;
  // Authorization without a rule allows everything.
  rules.allow("none", anyone());
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view whole = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(whole.size() + 1, text.size()));
    const std::string_view line = without_spaces(whole);
    if (line.empty() || line.front() == '#') continue;
    if (const Result<void> added = add(rules, line); !added) {
      return wrong_rule("line " + std::to_string(number) + ": " + added.error().text);
    }
  }
  return parsed;
}

Result<VolumeRules> VolumeRules::load(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text(rules_bytes_max + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (in.bad() || (!in.is_open())) return wrong_rule("cannot read the rules of " + file + " (--rules)");
  if (text.size() > rules_bytes_max) {
    return wrong_rule("the rules of " + file + " have more than " + std::to_string(rules_bytes_max) +
                      " bytes (--rules)");
  }
  Result<VolumeRules> rules = parse(text);
  if (!rules) return wrong_rule("the rules of " + file + " (--rules), " + rules.error().text);
  return rules;
}

bool VolumeRules::allow(const Identity& who, VolumeAccess access, std::string_view volume) const {
  return current_->open || current().allows(name_of_rule(access, volume), who);
}

Result<void> VolumeRules::check(const Identity& who, VolumeAccess access, std::string_view volume) const {
  if (allow(who, access, volume)) return {};
  return fail(who ? ErrorCode::permission_denied : ErrorCode::unauthenticated,
              who.text() + " may not " + std::string(access_names.at(static_cast<std::size_t>(access))) + " volume \"" +
                  std::string(volume.substr(0, 64)) + "\": no rule of the server (--rules) allows it");
}

}  // namespace hawser::block
