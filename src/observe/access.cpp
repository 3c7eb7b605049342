#include "observe/access.h"

#include <algorithm>
#include <cctype>

namespace hawser::observe {
namespace {

bool equal(std::string_view a, std::string_view b) noexcept {
  return std::ranges::equal(a, b, [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

// Fields that proxies add. Envoy adds no address by default, only the scheme.
constexpr std::string_view proxy_fields[] = {
    "forwarded",          "via",
    "x-forwarded-for",    "x-forwarded-host",
    "x-forwarded-proto",  "x-forwarded-port",
    "x-forwarded-server", "x-original-forwarded-for",
    "x-real-ip",          "x-client-ip",
    "x-original-host",    "x-envoy-external-address",
    "cf-connecting-ip",   "true-client-ip",
};

// The host of "host", "host:port" or "[address]:port".
std::string_view host_of(std::string_view authority) noexcept {
  if (authority.starts_with('[')) return authority.substr(0, std::min(authority.find(']') + 1, authority.size()));
  return authority.substr(0, authority.find(':'));
}

// A name that only an attacker's DNS could have led here is no address.
bool is_address(std::string_view host) noexcept {
  if (host.starts_with('[') && host.ends_with(']')) return true;
  return !host.empty() && std::ranges::all_of(host, [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

bool is_known(std::string_view authority, const PagesOptions& options) {
  const std::string_view host = host_of(authority);
  return is_address(host) || equal(host, "localhost") ||
         std::ranges::any_of(options.hosts, [&](const std::string& one) { return equal(one, host); });
}

}  // namespace

bool is_loopback(std::string_view peer) noexcept {
  return peer.starts_with("127.") || peer.starts_with("[::1]:") || peer.starts_with("[::ffff:127.") ||
         peer.starts_with("unix:");
}

std::string refusal_of(const HttpRequest& request, PageAccess access, const PagesOptions& options) {
  if (access == PageAccess::off) return "this page is off (PagesOptions)";
  if (access == PageAccess::all) return {};
  if (!is_loopback(request.peer())) {
    return "this page is for clients of the server's machine (PagesOptions: PageAccess::loopback): ask there, or "
           "through ssh -L, or set PageAccess::all";
  }
  for (const std::string_view name : proxy_fields) {
    if (request.header(name)) {
      return "this page is for clients of the server's machine, and a proxy has forwarded the request (" +
             std::string(name) + "): ask without it, or set PageAccess::all";
    }
  }
  if (const auto host = request.header("host"); host && !is_known(*host, options)) {
    return "the Host of the request is neither an address nor localhost: use one of these, or add the name to "
           "PagesOptions::hosts";
  }
  return {};
}

std::string change_refusal_of(const HttpRequest& request, const PagesOptions& options) {
  if (std::string why = refusal_of(request, options.pages, options); !why.empty()) return why;
  if (std::string why = refusal_of(request, options.changes, options); !why.empty()) return why;
  // A browser states which site has caused a request; other clients send neither field.
  if (const auto site = request.header("sec-fetch-site"); site && *site != "same-origin" && *site != "none") {
    return "another site has caused this request (Sec-Fetch-Site)";
  }
  const auto origin = request.header("origin");
  if (!origin) return {};
  const auto host = request.header("host");
  const std::size_t scheme = origin->find("://");
  if (!host || scheme == std::string_view::npos || !equal(origin->substr(scheme + 3), *host)) {
    return "another site has caused this request (Origin)";
  }
  return {};
}

}  // namespace hawser::observe
