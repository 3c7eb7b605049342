#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "hawser/transport/factory.h"
#include "negotiate/attached_transports.h"

namespace hawser {

std::string_view TransportSpec::name() const noexcept { return factory_->traits().name; }

void TransportOptions::enable(TransportSpec transport) {
  const auto at = std::ranges::find(enabled, transport.name(), &TransportSpec::name);
  if (at != enabled.end()) {
    *at = std::move(transport);
  } else {
    enabled.push_back(std::move(transport));
  }
}

void TransportOptions::disable(std::string_view name) {
  std::erase_if(enabled, [name](const TransportSpec& one) { return one.name() == name; });
}

namespace negotiate {
namespace {

static_assert(TransportOptions::transports_max == wire::transports_max);

constexpr std::string_view stream_name = "stream";  // In TransportOptions::required: no transport beside the stream.

template <class Names>
std::string listed(const Names& names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

std::vector<std::string_view> names_of(const TransportList& transports) {
  std::vector<std::string_view> names;
  for (const auto& transport : transports) names.push_back(transport->name());
  return names;
}

bool may_be_name(std::string_view name) noexcept {
  const auto fits = [](char one) {
    return (one >= 'a' && one <= 'z') || (one >= '0' && one <= '9') || one == '-' || one == '_';
  };
  return !name.empty() && name.size() <= wire::transport_name_bytes_max && name != stream_name &&
         std::ranges::all_of(name, fits);
}

Result<void> check_enabled(std::span<const TransportSpec> enabled) {
  for (std::size_t i = 0; i < enabled.size(); ++i) {
    const std::string_view name = enabled[i].name();
    const std::string named = "TransportOptions::enabled has a transport named \"" + std::string(name) + "\"";
    if (!may_be_name(name)) {
      return fail(ErrorCode::invalid_argument, named + ": a name has 1 to " +
                                                   std::to_string(wire::transport_name_bytes_max) +
                                                   " characters out of a-z, 0-9, - and _, and is not \"stream\"");
    }
    const auto same = [name](const TransportSpec& other) { return other.name() == name; };
    if (std::ranges::any_of(enabled.first(i), same)) {
      return fail(ErrorCode::invalid_argument,
                  named + " twice: add each name once; TransportOptions::enable() replaces the one of the same name");
    }
  }
  return {};
}

// Returns the names that the options may use: all transports of this network, enabled or not.
std::vector<std::string_view> known_names(const TransportList& enabled, const transport::Network& network) {
  std::vector<std::string_view> known = network.transport_names();
  for (const std::string_view name : names_of(enabled)) {
    if (std::ranges::find(known, name) == known.end()) known.push_back(name);
  }
  return known;
}

Result<void> check_named(const TransportOptions& options, const std::vector<std::string_view>& known) {
  const auto is_known = [&](std::string_view name) { return std::ranges::find(known, name) != known.end(); };
  const auto unknown = [&](const char* option, const std::string& name, const char* also) {
    return fail(ErrorCode::invalid_argument, std::string("TransportOptions::") + option + " names \"" + name +
                                                 "\", and there is no such transport: " +
                                                 (known.empty() ? "none is enabled" : listed(known)) + also);
  };
  for (const std::string& name : options.order) {
    if (!is_known(name)) return unknown("order", name, "");
  }
  if (!options.required.empty() && options.required != stream_name && !is_known(options.required)) {
    return unknown("required", options.required, " or stream");
  }
  return {};
}

}  // namespace

Result<TransportList> choose_transports(const TransportOptions& options, transport::Network& network) {
  TRY(check_enabled(options.enabled));
  TransportList enabled = network.transports(options);
  TRY(check_named(options, known_names(enabled, network)));
  TransportList chosen;
  if (options.order.empty()) chosen = enabled;
  for (const std::string& name : options.order) {
    const auto named = [&name](const auto& transport) { return transport->name() == name; };
    const auto at = std::ranges::find_if(enabled, named);
    if (at != enabled.end() && std::ranges::none_of(chosen, named)) chosen.push_back(*at);
  }
  if (!options.required.empty())
    std::erase_if(chosen, [&](const auto& transport) { return transport->name() != options.required; });
  if (chosen.size() > TransportOptions::transports_max) {
    return fail(
        ErrorCode::limit_exceeded,
        std::to_string(chosen.size()) + " transports are enabled (" + listed(names_of(chosen)) +
            "), and a HELLO offers at most " + std::to_string(TransportOptions::transports_max) +
            " (TransportOptions::transports_max): enable fewer, or name those to use in TransportOptions::order");
  }
  return chosen;
}

}  // namespace negotiate
}  // namespace hawser
