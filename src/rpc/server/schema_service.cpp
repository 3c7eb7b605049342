#include "rpc/server/schema_service.h"

#include <algorithm>
#include <memory>
#include <string>

#include "hawser/detail/handler.h"
#include "rpc/server/describer.h"

namespace hawser::rpc {

template <auto wire, auto method>
void SchemaService::add() {
  using Facts = detail::MethodFacts<wire>;
  static_assert(Facts::signature == detail::MethodFacts<method>::signature);
  dispatcher_.add({.id = Facts::id,
                   .signature = Facts::signature,
                   .name = std::string(Facts::name),
                   .handler = std::make_unique<detail::FunctionHandler<method, SchemaService>>(this, HandlerOptions()),
                   .describe = &detail::describe_method<wire>});
}

void SchemaService::begin() {
  add<&schema::list, &SchemaService::list>();
  add<&schema::describe, &SchemaService::describe>();
  add<&hawser::is_serving, &SchemaService::is_serving>();
  dispatcher_.each([this](const Dispatcher::Method& method) { names_.push_back(method.name); });
  std::ranges::sort(names_);
}

schema::Names SchemaService::list(std::string_view after) const {
  const auto begin = after.empty() ? names_.begin() : std::ranges::upper_bound(names_, after);
  const auto count = std::min(static_cast<std::size_t>(names_.end() - begin), schema::names_max);
  const auto end = begin + static_cast<std::ptrdiff_t>(count);
  return {.names = {begin, end}, .more = end != names_.end()};
}

Result<schema::Description> SchemaService::describe(std::string_view name) const {
  const Dispatcher::Method* const method = dispatcher_.find(name);
  if (method == nullptr) {
    return fail(ErrorCode::invalid_argument, "the server has no method " + std::string(name.substr(0, 200)) +
                                                 ": hawser::schema::list() and `hawser list` name its methods");
  }
  if (method->describe == nullptr) {
    return fail(ErrorCode::invalid_argument, "the types of this method are not known: it was registered without them");
  }
  return Describer(*method).take();
}

Result<bool> SchemaService::is_serving(std::string_view service) const {
  const HealthStatus status = health_.status(service);
  if (status != HealthStatus::unknown) return status == HealthStatus::serving;
  return fail(ErrorCode::invalid_argument, "the server has no health of the service " +
                                               std::string(service.substr(0, 200)) +
                                               ": ServerHealth::set() or add() names those that have one");
}

}  // namespace hawser::rpc
