#include "observe/access.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

#include "base/ascii_case.h"
#include "hawser/authorization.h"
#include "observe/document.h"
#include "os/secret_file.h"

namespace hawser::observe {
namespace {

// Fields by which a proxy names its client, or itself. Their beginnings:
constexpr std::string_view proxy_beginnings[] = {
    "forwarded", "via",       "x-forwarded", "x-real-",     "x-client-",      "x-cluster-",  "x-original-", "x-envoy-",
    "x-proxy",   "x-remote-", "x-azure-",    "x-amzn-",     "x-appengine-",   "x-goog-",     "x-arr-",      "x-ssl-",
    "cf-",       "fastly-",   "fly-",        "tailscale-",  "true-client-",   "cloudfront-", "akamai-",     "incap-",
    "proxy-",    "remote-",   "client-",     "ssl-client-", "x-auth-request", "x-authentik", "x-webauth-",  "x-sucuri-",
    "x-ms-",     "x-nginx-",  "x-haproxy-",  "x-traefik-",  "x-vercel-",      "x-nf-",       "cdn-",        "ali-"};
// And parts that no client of a page sends by itself.
constexpr std::string_view proxy_parts[] = {"forwarded", "client-ip",   "clientip",    "connecting-ip", "real-ip",
                                            "remote-ip", "remote-addr", "client-cert", "user-login",    "source-ip"};

bool names_proxy(std::string_view field) {
  std::string name(field);
  for (char& c : name) c = c == '_' ? '-' : ascii_lower(c);
  return std::ranges::any_of(proxy_beginnings, [&](std::string_view one) { return name.starts_with(one); }) ||
         std::ranges::any_of(proxy_parts, [&](std::string_view one) { return name.contains(one); });
}

// The host of "host", "host:port" or "[address]:port".
std::string_view host_of(std::string_view authority) noexcept {
  if (authority.starts_with('[')) return authority.substr(0, std::min(authority.find(']') + 1, authority.size()));
  return authority.substr(0, authority.find(':'));
}

// A name that only an attacker's DNS could have led here is not an address.
bool is_address(std::string_view host) noexcept {
  if (host.starts_with('[') && host.ends_with(']')) return true;
  return !host.empty() && std::ranges::all_of(host, [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

// The kernel named the process. It may do to the server what it likes anyway.
bool is_own_user(const Identity& identity) noexcept {
  return identity.kind == Identity::Kind::unix_peer && is_own_user_or_root(identity.uid);
}

bool is_known(std::string_view authority, const PagesOptions& options) {
  const std::string_view host = host_of(authority);
  return is_address(host) || equal_without_case(host, "localhost") ||
         std::ranges::any_of(options.hosts, [&](const std::string& one) { return equal_without_case(one, host); });
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
  for (const auto& [name, value] : request.headers()) {
    if (names_proxy(name)) {
      return "this page is for clients of the server's machine, and a proxy has forwarded the request (" +
             harmless(name, 64) + "): ask without it, or set PageAccess::all";
    }
  }
  if (const auto host = request.header("host"); host && !is_known(*host, options)) {
    return "the Host of the request is neither an address nor localhost: use one of these, or add the name to "
           "PagesOptions::hosts";
  }
  return {};
}

std::string use_refusal_of(const HttpRequest& request, const PagesOptions& options) {
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
  if (!host || scheme == std::string_view::npos || !equal_without_case(origin->substr(scheme + 3), *host)) {
    return "another site has caused this request (Origin)";
  }
  return {};
}

std::string change_refusal_of(const HttpRequest& request, const PagesOptions& options, std::string_view token) {
  if (std::string why = use_refusal_of(request, options); !why.empty()) return why;
  const Identity& identity = request.identity();
  if (options.operators ? options.operators(identity) : is_own_user(identity)) return {};
  std::string given(request.header("hawser-token").value_or(std::string_view()));
  if (given.empty()) given = query_of(request.text(), "token");
  if (!token.empty() && equal_in_constant_time(given, token)) return {};
  if (!given.empty()) {
    return token.empty() ? "this server has no token (PagesOptions::change_token, change_token_file)"
                         : "the token is wrong: send that of PagesOptions::change_token or change_token_file";
  }
  return std::string("a change needs a proof, since an address proves nothing: ") +
         (token.empty() ? "" : "send the token of the server in the header field Hawser-Token, or ") +
         (options.operators ? "be one of PagesOptions::operators"
                            : "ask through a Unix socket as the user of the server") +
         (token.empty() ? ", or set PagesOptions::change_token_file" : "");
}

// ---- The token ----

namespace {

std::string checked(std::string token, const std::string& from) {
  if (token.size() >= BearerTokens::token_bytes_min) return token;
  throw std::invalid_argument("hawser: enable_pages(): the token of " + from + " has " + std::to_string(token.size()) +
                              " bytes, and shorter ones than " + std::to_string(BearerTokens::token_bytes_min) +
                              " can be guessed: use new_change_token()");
}

[[noreturn]] void refuse_file(const std::string& path, const std::string& why) {
  throw std::runtime_error("hawser: enable_pages(): PagesOptions::change_token_file " + path + ": " + why);
}

std::string read_token(const std::string& path) {
  if (others_may_use(path)) refuse_file(path, "others than its owner may use it: chmod 600");
  constexpr std::size_t token_bytes_max = 4096;
  const auto bytes = read_secret_file(path, token_bytes_max, {}, std::chrono::seconds(5));
  if (!bytes) refuse_file(path, bytes.error().text);
  std::string_view line(bytes->data(), bytes->size());
  line = line.substr(0, line.find_first_of("\r\n"));
  return checked(std::string(line), path);
}

}  // namespace

std::string change_token_of(const PagesOptions& options) {
  if (!options.change_token.empty()) return checked(options.change_token, "PagesOptions::change_token");
  const std::string& path = options.change_token_file;
  if (path.empty()) return {};
  std::string token = new_change_token();
  const Result<bool> made = make_secret_file(path, token + "\n");
  if (!made) refuse_file(path, made.error().text);
  if (!*made) return read_token(path);
  return token;
}

}  // namespace hawser::observe
