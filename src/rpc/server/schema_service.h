#pragma once

#include <string_view>
#include <vector>

#include "hawser/error.h"
#include "hawser/schema.h"
#include "rpc/server/dispatcher.h"

namespace hawser::rpc {

// The methods of a server that describe its methods: hawser::schema::list and hawser::schema::describe.
class SchemaService {
 public:
  // `dispatcher` must outlive this object.
  explicit SchemaService(Dispatcher& dispatcher) noexcept : dispatcher_(dispatcher) {}
  SchemaService(const SchemaService&) = delete;
  SchemaService& operator=(const SchemaService&) = delete;

  // Registers the methods, after all others. This object must outlive the calls of the server.
  void begin();

  // Any thread, after begin().
  schema::Names list(std::string_view after) const;
  Result<schema::Description> describe(std::string_view name) const;

 private:
  template <auto wire, auto method>
  void add();

  Dispatcher& dispatcher_;
  std::vector<std::string_view> names_;  // Sorted. The names lie in the dispatcher.
};

}  // namespace hawser::rpc
