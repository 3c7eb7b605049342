#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/http.h"
#include "rpc/port/port_protocol.h"

namespace hawser::protocol::http {

// The handler of a route: one of the two.
struct Route {
  HttpHandler handler;
  HttpBodyHandler body_handler = {};
  bool reserved = false;   // Http::operator_route().
  std::size_t number = 0;  // Its place in RouteTable::names().
  Task<HttpResponse> run(HttpRequest& request, HttpBodyReader& reader) const {
    return body_handler ? body_handler(request, reader) : handler(request);
  }
};

// The routes of a server, by path. Filled before the server starts; all its loops read it afterwards.
class RouteTable {
 public:
  // Throws std::logic_error if the route exists or the path does not begin with '/'.
  void add(std::string_view method, std::string_view path, Route route);

  struct Found {
    const Route* route = nullptr;  // Null if the path is not served, or not with this method.
    std::string allowed;           // The methods of the path, if it is served but not with this method.
    // The route's path if it has parameters or ends with "/*", without '*' then. Valid as long as the table.
    std::string_view pattern;
  };
  Found find(std::string_view method, std::string_view path) const;
  // Method and path of each route, as they were added. Routes of operators are not counted: a scraper would count
  // itself.
  const rpc::PortProtocol::RouteNames& names() const noexcept { return names_; }

 private:
  using Methods = std::map<std::string, Route, std::less<>>;
  std::map<std::string, Methods, std::less<>> exact_;
  std::map<std::string, Methods, std::less<>> prefixes_;  // Paths with '/' at their end.
  struct Pattern {
    std::string path;
    std::string kinds;  // One character for each segment: '0' if it is fixed, '1' if it is a parameter.
    Methods methods;
  };
  Methods& pattern_methods(std::string_view path);
  rpc::PortProtocol::RouteNames names_;
  std::vector<Pattern> patterns_;  // In the order in which they are tried: fixed segments go before parameters.
};

// The segment of `path` that the parameter `name` of `pattern` stands for; nothing if there is no such parameter.
// `path` matches `pattern`.
std::optional<std::string_view> path_parameter(std::string_view pattern, std::string_view path,
                                               std::string_view name) noexcept;

}  // namespace hawser::protocol::http
