#include "cluster/kubernetes/kubernetes_name.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <system_error>

#include "base/escaped_text.h"

namespace hawser::cluster {
namespace {

constexpr std::size_t label_bytes_max = 63;
constexpr std::size_t shown_target_bytes_max = 80;

}  // namespace

bool is_kubernetes_label(std::string_view text) noexcept {
  return !text.empty() && text.size() <= label_bytes_max && !text.starts_with('-') && !text.ends_with('-') &&
         std::ranges::all_of(
             text, [](char one) { return (one >= 'a' && one <= 'z') || (one >= '0' && one <= '9') || one == '-'; });
}

namespace {

// The name of a port, or its number.
bool is_kubernetes_port(std::string_view text) noexcept {
  if (!std::ranges::all_of(text, [](char one) { return one >= '0' && one <= '9'; })) return is_kubernetes_label(text);
  std::uint16_t number = 0;
  return std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc() && number != 0;
}

}  // namespace

Result<KubernetesName> parse_kubernetes_name(std::string_view target) {
  std::string_view rest = target;
  if (rest.starts_with('/')) rest.remove_prefix(1);
  if (rest.ends_with('/')) rest.remove_suffix(1);
  KubernetesName name;
  bool good = true;
  if (const std::size_t colon = rest.find(':'); colon != std::string_view::npos) {
    name.port = rest.substr(colon + 1);
    good = is_kubernetes_port(name.port);
    rest = rest.substr(0, colon);
  }
  if (const std::size_t point = rest.find('.'); point != std::string_view::npos) {
    name.name_space = rest.substr(point + 1);
    good = good && is_kubernetes_label(name.name_space);
    rest = rest.substr(0, point);
  }
  name.service = rest;
  if (good && is_kubernetes_label(name.service)) return name;
  std::string shown;
  append_escaped(shown, target, shown_target_bytes_max);
  return fail(ErrorCode::invalid_argument,
              "'" + shown +
                  "' is not a service of Kubernetes: write "
                  "kubernetes:///service.namespace:port with names of a-z, 0-9 and -, or the number of a port");
}

}  // namespace hawser::cluster
