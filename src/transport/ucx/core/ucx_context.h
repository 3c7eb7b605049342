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

// Returns an error if an option is out of its bounds.
Result<void> check(const UcxOptions& options);

// UCX's memory, devices and settings, which the workers of a transport share. Thread-safe.
class UcxContext {
 public:
  // `events`: workers of the context can wake a sleeping loop. UCX may send from and receive into `memory`. `ucp` must
  // outlive the context.
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

// Returns the names and values of the UCX settings that `options` require. `library` is UcpLibrary::version; empty:
// those that all versions need.
std::vector<std::pair<std::string, std::string>> ucx_settings(const UcxOptions& options, std::string_view library = {});

}  // namespace hawser::transport
