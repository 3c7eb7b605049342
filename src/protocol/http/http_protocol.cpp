#include "protocol/http/http_protocol.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "protocol/http/http_session.h"
#include "protocol/http/message_parser.h"
#include "protocol/http/response.h"
#include "protocol/http/stream_exchange.h"

namespace hawser {

namespace protocol::http {

namespace {

// Removes the first segment of a path, which begins with '/', and returns it.
std::string_view take_segment(std::string_view& path) noexcept {
  path.remove_prefix(1);
  const std::string_view segment = path.substr(0, path.find('/'));
  path.remove_prefix(segment.size());
  return segment;
}

bool is_parameter(std::string_view segment) noexcept { return segment.starts_with('{'); }

bool matches(std::string_view pattern, std::string_view path) noexcept {
  while (!pattern.empty() && !path.empty()) {
    const std::string_view wanted = take_segment(pattern);
    const std::string_view given = take_segment(path);
    if (is_parameter(wanted) ? given.empty() : given != wanted) return false;
  }
  return pattern.empty() && path.empty();
}

}  // namespace

std::optional<std::string_view> path_parameter(std::string_view pattern, std::string_view path,
                                               std::string_view name) noexcept {
  while (!pattern.empty() && !path.empty()) {
    const std::string_view wanted = take_segment(pattern);
    const std::string_view given = take_segment(path);
    if (is_parameter(wanted) && wanted.substr(1, wanted.size() - 2) == name) return given;
  }
  return std::nullopt;
}

RouteTable::Methods& RouteTable::pattern_methods(std::string_view path) {
  std::string kinds;
  std::vector<std::string_view> names;
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view segment = take_segment(rest);
    kinds += is_parameter(segment) ? '1' : '0';
    const bool braces = segment.find_first_of("{}") != std::string_view::npos;
    const bool whole =
        segment.size() > 2 && segment.front() == '{' && segment.find_first_of("{}", 1) == segment.size() - 1;
    if (segment == "*" || (braces && (!whole || std::ranges::find(names, segment) != names.end()))) {
      throw std::logic_error("hawser: the path " + std::string(path) +
                             " of a route: a parameter is a whole segment {name}, with a name of its own, and no * "
                             "stands beside it");
    }
    if (whole) names.push_back(segment);
  }
  for (Pattern& one : patterns_) {
    if (one.path == path) return one.methods;
    // Equal but for the names: the same paths would match.
    bool same = one.kinds == kinds;
    std::string_view left = one.path;
    std::string_view right = path;
    while (same && !left.empty()) {
      const std::string_view a = take_segment(left);
      const std::string_view b = take_segment(right);
      same = is_parameter(a) || a == b;
    }
    if (same) {
      throw std::logic_error("hawser: the route " + std::string(path) + " exists already as " + one.path);
    }
  }
  const auto before = [](const Pattern& one, const std::string& other) { return one.kinds <= other; };
  const auto place = std::lower_bound(patterns_.begin(), patterns_.end(), kinds, before);
  return patterns_.insert(place, Pattern{std::string(path), kinds, {}})->methods;
}

void RouteTable::add(std::string_view method, std::string_view path, Route route) {
  const std::string text = std::string(method) + " " + std::string(path);
  if (!path.starts_with('/'))
    throw std::logic_error("hawser: the path of the route " + text + " does not begin with /");
  const bool prefix = path.ends_with("/*");
  const bool pattern = path.find_first_of("{}") != std::string_view::npos;
  Methods& methods = pattern  ? pattern_methods(path)
                     : prefix ? prefixes_[std::string(path.substr(0, path.size() - 1))]
                              : exact_[std::string(path)];
  std::vector<std::string>& names = route.reserved ? names_.others : names_.counted;
  route.number = names.size();
  if (!methods.emplace(method, std::move(route)).second) {
    throw std::logic_error("hawser: the route " + text + " exists already");
  }
  names.push_back(text);
}

RouteTable::Found RouteTable::find(std::string_view method, std::string_view path) const {
  const Methods* methods = nullptr;
  std::string_view pattern;
  if (const auto exact = exact_.find(path); exact != exact_.end()) methods = &exact->second;
  for (std::size_t i = 0; methods == nullptr && i < patterns_.size(); ++i) {
    if (!path.starts_with('/') || !matches(patterns_[i].path, path)) continue;
    methods = &patterns_[i].methods;
    pattern = patterns_[i].path;
  }
  // The longest prefix first.
  for (std::size_t slash = path.rfind('/'); methods == nullptr && !prefixes_.empty() && slash != std::string_view::npos;
       slash = slash == 0 ? std::string_view::npos : path.rfind('/', slash - 1)) {
    const auto prefix = prefixes_.find(path.substr(0, slash + 1));
    if (prefix == prefixes_.end()) continue;
    methods = &prefix->second;
    pattern = prefix->first;
  }
  if (methods == nullptr) return {};
  auto found = methods->find(method);
  if (found == methods->end() && method == "HEAD") found = methods->find("GET");
  if (found != methods->end()) return {.route = &found->second, .allowed = {}, .pattern = pattern};
  std::string allowed;
  for (const auto& [name, route] : *methods) {
    allowed += (allowed.empty() ? "" : ", ") + name;
    if (name == "GET" && !methods->contains("HEAD")) allowed += ", HEAD";
  }
  return {.route = nullptr, .allowed = std::move(allowed), .pattern = {}};
}

HttpProtocol::Match HttpProtocol::match(Bytes first) const noexcept {
  std::string_view text = as_text(first);
  // A client may send an empty line before a request (RFC 9112, 2.2).
  if (text.starts_with("\r\n")) text.remove_prefix(2);
  if (text.empty() || text == "\r") return Match::more;
  // Any method, a space and the beginning of a target. The preface of HTTP/2 has that form, too.
  if (text.starts_with("PRI ")) return Match::no;
  const auto* const end = std::ranges::find_if_not(text, is_token_character);
  if (end == text.begin()) return Match::no;
  if (end == text.end()) return Match::more;
  const std::string_view method(text.begin(), end);
  const std::string_view rest(end, text.end());
  if (rest.front() != ' ') return Match::no;
  if (rest.size() == 1) return Match::more;
  constexpr std::string_view begins = "/*hH";
  return method == "CONNECT" || begins.contains(rest[1]) ? Match::yes : Match::no;
}

std::unique_ptr<rpc::PortSession> HttpProtocol::open(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream,
                                                     Bytes first) const {
  return std::make_unique<HttpSession>(host, std::move(stream), first, served(host));
}

std::unique_ptr<rpc::HttpStreams> HttpProtocol::open_streams(rpc::HttpStreamHost& host) const {
  return std::make_unique<StreamExchanges>(host, served(host.port_host()));
}

std::string HttpProtocol::refusal(const Error& why) const {
  const std::string body = error_json(why);
  ResponseWriter head;
  const int status = status_of(why.code);
  head.begin(status, 1, unix_seconds_now());
  if (status == 503) head.add("Retry-After", "1");
  head.add_type("application/json");
  head.end(body.size(), false);
  return std::string(head.text()) + body;
}

}  // namespace protocol::http

Http::Http(HttpOptions options) : options_(options), routes_(std::make_shared<protocol::http::RouteTable>()) {}

Http& Http::route(std::string_view method, std::string_view path, HttpHandler handler) & {
  routes_->add(method, path, {.handler = std::move(handler)});
  return *this;
}

Http&& Http::route(std::string_view method, std::string_view path, HttpHandler handler) && {
  routes_->add(method, path, {.handler = std::move(handler)});
  return std::move(*this);
}

Http& Http::route(std::string_view method, std::string_view path, HttpBodyHandler handler) & {
  routes_->add(method, path, {.handler = {}, .body_handler = std::move(handler)});
  return *this;
}

Http&& Http::route(std::string_view method, std::string_view path, HttpBodyHandler handler) && {
  routes_->add(method, path, {.handler = {}, .body_handler = std::move(handler)});
  return std::move(*this);
}

Http& Http::operator_route(std::string_view method, std::string_view path, HttpHandler handler) & {
  routes_->add(method, path, {.handler = std::move(handler), .body_handler = {}, .reserved = true});
  return *this;
}

Http&& Http::operator_route(std::string_view method, std::string_view path, HttpHandler handler) && {
  return std::move(operator_route(method, path, std::move(handler)));
}

// The table is copied: routes that are added later are not those of a server that may be running.
Http::operator ProtocolSpec() const {
  return ProtocolSpec(std::make_shared<protocol::http::HttpProtocol>(
      options_, std::make_shared<const protocol::http::RouteTable>(*routes_)));
}

}  // namespace hawser
