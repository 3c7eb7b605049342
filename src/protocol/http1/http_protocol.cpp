#include "protocol/http1/http_protocol.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "protocol/http1/http_session.h"
#include "protocol/http1/response.h"

namespace hawser {

namespace http1 {

void RouteTable::add(std::string_view method, std::string_view path, HttpHandler handler) {
  const std::string text = std::string(method) + " " + std::string(path);
  if (!path.starts_with('/'))
    throw std::logic_error("hawser: the path of the route " + text + " does not begin with /");
  const bool prefix = path.ends_with("/*");
  Methods& methods = prefix ? prefixes_[std::string(path.substr(0, path.size() - 1))] : exact_[std::string(path)];
  if (!methods.emplace(method, std::move(handler)).second) {
    throw std::logic_error("hawser: the route " + text + " exists already");
  }
}

RouteTable::Found RouteTable::find(std::string_view method, std::string_view path) const {
  const Methods* methods = nullptr;
  if (const auto exact = exact_.find(path); exact != exact_.end()) methods = &exact->second;
  // The longest prefix first.
  for (std::size_t slash = path.rfind('/'); methods == nullptr && !prefixes_.empty() && slash != std::string_view::npos;
       slash = slash == 0 ? std::string_view::npos : path.rfind('/', slash - 1)) {
    const auto prefix = prefixes_.find(path.substr(0, slash + 1));
    if (prefix != prefixes_.end()) methods = &prefix->second;
  }
  if (methods == nullptr) return {};
  auto found = methods->find(method);
  if (found == methods->end() && method == "HEAD") found = methods->find("GET");
  if (found != methods->end()) return {.handler = &found->second, .allowed = {}};
  std::string allowed;
  for (const auto& [name, handler] : *methods) allowed += (allowed.empty() ? "" : ", ") + name;
  return {.handler = nullptr, .allowed = std::move(allowed)};
}

HttpProtocol::Match HttpProtocol::match(Bytes first) const noexcept {
  constexpr std::string_view methods[] = {"GET ",   "POST ",    "HEAD ",  "PUT ",    "DELETE ",
                                          "PATCH ", "OPTIONS ", "TRACE ", "CONNECT "};
  const std::string_view text = as_text(first);
  const auto any = [&](auto matches) { return std::ranges::any_of(methods, matches); };
  if (any([&](std::string_view method) { return text.starts_with(method); })) return Match::yes;
  return any([&](std::string_view method) { return method.starts_with(text); }) ? Match::more : Match::no;
}

std::unique_ptr<rpc::PortSession> HttpProtocol::open(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream,
                                                     Bytes first) const {
  return std::make_unique<HttpSession>(host, std::move(stream), first, options_, *routes_, functions_);
}

std::string HttpProtocol::refusal(const Error& why) const {
  const std::string body = error_json(why);
  ResponseWriter head;
  head.begin(status_of(why.code), 1, unix_seconds());
  head.add("Retry-After", "1");
  head.add_type("application/json");
  head.end(body.size(), false);
  return std::string(head.text()) + body;
}

}  // namespace http1

Http::Http(HttpOptions options) : options_(options), routes_(std::make_shared<http1::RouteTable>()) {}

Http& Http::route(std::string_view method, std::string_view path, HttpHandler handler) & {
  routes_->add(method, path, std::move(handler));
  return *this;
}

Http&& Http::route(std::string_view method, std::string_view path, HttpHandler handler) && {
  routes_->add(method, path, std::move(handler));
  return std::move(*this);
}

// The table is copied: routes that are added later are not those of a server that may be running.
Http::operator ProtocolSpec() const {
  return ProtocolSpec(
      std::make_shared<http1::HttpProtocol>(options_, std::make_shared<const http1::RouteTable>(*routes_)));
}

}  // namespace hawser
