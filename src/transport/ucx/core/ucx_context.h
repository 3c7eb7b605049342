#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <vector>

#include "hawser/error.h"
#include "hawser/ucx_options.h"
#include "transport/ucx/core/ucp_library.h"
#include "transport/ucx/core/ucx_lingering.h"
#include "transport/ucx/core/ucx_memory.h"

namespace hawser::transport {

// What is wrong with the options, if anything.
Result<void> check(const UcxOptions& options);

// UCX's memory, devices and settings, shared by the workers of a path. Thread-safe.
class UcxContext {
 public:
  // `events`: its workers can wake a loop that sleeps. `memory` may be sent from and received into. `ucp` outlives it.
  static Result<std::shared_ptr<UcxContext>> make(
      const UcpLibrary& ucp, const UcxOptions& options, bool events,
      std::shared_ptr<UcxMemory> memory = std::make_shared<UcxMemory>(),
      std::shared_ptr<UcxLingering> lingering = std::make_shared<UcxLingering>());
  static Result<std::shared_ptr<UcxContext>> make(
      const UcxOptions& options, bool events, std::shared_ptr<UcxMemory> memory = std::make_shared<UcxMemory>(),
      std::shared_ptr<UcxLingering> lingering = std::make_shared<UcxLingering>());
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;
  ~UcxContext();

  const UcpLibrary& ucp() const noexcept { return ucp_; }
  ucp_context_h get() const noexcept { return context_; }
  const UcxOptions& options() const noexcept { return options_; }
  bool events() const noexcept { return events_; }
  UcxMemory& memory() const noexcept { return *memory_; }
  UcxLingering& lingering() const noexcept { return *lingering_; }

 private:
  UcxContext(const UcpLibrary& ucp, ucp_context_h context, const UcxOptions& options, bool events,
             std::shared_ptr<UcxMemory> memory, std::shared_ptr<UcxLingering> lingering)
      : ucp_(ucp),
        context_(context),
        options_(options),
        events_(events),
        memory_(std::move(memory)),
        lingering_(std::move(lingering)) {}

  const UcpLibrary& ucp_;
  const ucp_context_h context_;
  const UcxOptions options_;
  const bool events_;
  const std::shared_ptr<UcxMemory> memory_;
  const std::shared_ptr<UcxLingering> lingering_;
};

// What `options` ask of UCX, as names and values of its settings.
std::vector<std::pair<std::string, std::string>> ucx_settings(const UcxOptions& options);

}  // namespace hawser::transport
