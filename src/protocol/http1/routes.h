#pragma once

#include <map>
#include <string>
#include <string_view>

#include "hawser/http.h"

namespace hawser::http1 {

// The routes of a server, by path. Filled before the server starts; all its loops read it afterwards.
class RouteTable {
 public:
  // Throws std::logic_error if the route exists or the path does not begin with '/'.
  void add(std::string_view method, std::string_view path, HttpHandler handler);

  struct Found {
    const HttpHandler* handler = nullptr;  // Null if the path is not served, or not with this method.
    std::string allowed;                   // The methods of the path, if it is served but not with this method.
  };
  Found find(std::string_view method, std::string_view path) const;

 private:
  using Methods = std::map<std::string, HttpHandler, std::less<>>;
  std::map<std::string, Methods, std::less<>> exact_;
  std::map<std::string, Methods, std::less<>> prefixes_;  // Paths with '/' at their end.
};

}  // namespace hawser::http1
