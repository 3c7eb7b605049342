#pragma once

#include <string_view>
#include <vector>

#include "hawser/error.h"
#include "hawser/schema.h"
#include "rpc/port/health_state.h"
#include "rpc/server/dispatcher.h"

namespace hawser::rpc {

// The methods of a server that describe it: hawser::schema::list, hawser::schema::describe and hawser::is_serving.
class SchemaService {
 public:
  // `dispatcher` and `health` must outlive this object.
  SchemaService(Dispatcher& dispatcher, const HealthState& health) noexcept
      : dispatcher_(dispatcher), health_(health) {}
  SchemaService(const SchemaService&) = delete;
  SchemaService& operator=(const SchemaService&) = delete;

  // Registers the methods, after all others. This object must outlive the calls of the server.
  void begin();

  // Any thread, after begin().
  schema::Names list(std::string_view after) const;
  Result<schema::Description> describe(std::string_view name) const;
  Result<bool> is_serving(std::string_view service) const;

 private:
  template <auto wire, auto method>
  void add();

  Dispatcher& dispatcher_;
  const HealthState& health_;
  std::vector<std::string_view> names_;  // Sorted. The names lie in the dispatcher.
};

}  // namespace hawser::rpc
