#include "transport/ucx/core/ucp_library.h"

#include <dlfcn.h>
#include <signal.h>

#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>

#include "base/descriptor.h"
#include "base/try.h"

namespace hawser::transport {
namespace {

constexpr const char* library_name = "libucp.so.0";

template <class Function>
void find(void* library, const char* name, Function& function, std::string& missing) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) missing += std::string(missing.empty() ? "" : ", ") + name;
}

// libucm patches the machine code of mmap and similar functions when it is loaded. In a program with a sanitizer this
// code belongs to the sanitizer, and the program crashes.
Result<void> check_hooks() {
  const char* const hooks = std::getenv("UCX_MEM_MMAP_HOOK_MODE");
  const bool sanitized =
      ::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr || ::dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr;
  if (!sanitized || (hooks != nullptr && std::string_view(hooks) == "none")) return {};
  return fail(Error::of_transport(
      ErrorCode::unavailable,
      "UCX patches functions that sanitizers patch too: set UCX_MEM_MMAP_HOOK_MODE=none in the environment of a "
      "sanitized program"));
}

// libucs installs handlers of SIGSEGV and other signals, and a signal stack, when it is loaded. Both are restored.
Result<void*> load_quietly() {
  open_standard_descriptors();  // UCX makes descriptors of its own.
  stack_t stack{};
  const bool had_stack = ::sigaltstack(nullptr, &stack) == 0;
  void* const library = ::dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    return fail(Error::of_transport(ErrorCode::unavailable, std::string("UCX can't be loaded: ") +
                                                                (reason != nullptr ? reason : library_name) +
                                                                ": install libucx0, or leave UCX out"));
  }
  if (const auto disable = reinterpret_cast<void (*)()>(::dlsym(library, "ucs_debug_disable_signals"))) disable();
  if (had_stack) ::sigaltstack(&stack, nullptr);
  return library;
}

}  // namespace

Result<void> UcpLibrary::open() {
  TRY(check_hooks());
  TRY(void* const library, load_quietly());
  std::string missing;
  find(library, "ucp_config_read", config_read, missing);
  find(library, "ucp_config_modify", config_modify, missing);
  find(library, "ucp_config_release", config_release, missing);
  find(library, "ucp_init_version", init_version, missing);
  find(library, "ucp_cleanup", cleanup, missing);
  find(library, "ucp_context_print_info", context_print_info, missing);
  find(library, "ucp_worker_create", worker_create, missing);
  find(library, "ucp_worker_destroy", worker_destroy, missing);
  find(library, "ucp_worker_query", worker_query, missing);
  find(library, "ucp_worker_release_address", worker_release_address, missing);
  find(library, "ucp_worker_get_efd", worker_get_efd, missing);
  find(library, "ucp_worker_arm", worker_arm, missing);
  find(library, "ucp_worker_progress", worker_progress, missing);
  find(library, "ucp_worker_flush_nbx", worker_flush_nbx, missing);
  find(library, "ucp_worker_set_am_recv_handler", worker_set_am_recv_handler, missing);
  find(library, "ucp_listener_create", listener_create, missing);
  find(library, "ucp_listener_destroy", listener_destroy, missing);
  find(library, "ucp_listener_query", listener_query, missing);
  find(library, "ucp_listener_reject", listener_reject, missing);
  find(library, "ucp_ep_create", ep_create, missing);
  find(library, "ucp_ep_flush_nbx", ep_flush_nbx, missing);
  find(library, "ucp_ep_close_nbx", ep_close_nbx, missing);
  find(library, "ucp_ep_print_info", ep_print_info, missing);
  find(library, "ucp_am_send_nbx", am_send_nbx, missing);
  find(library, "ucp_am_recv_data_nbx", am_recv_data_nbx, missing);
  find(library, "ucp_am_data_release", am_data_release, missing);
  find(library, "ucp_request_free", request_free, missing);
  find(library, "ucs_status_string", status_string, missing);
  const char* (*version_string)() = nullptr;
  find(library, "ucp_get_version_string", version_string, missing);
  if (!missing.empty()) {
    return fail(Error::of_transport(ErrorCode::unavailable, std::string(library_name) + " lacks " + missing +
                                                                ": install UCX 1.13 or later, or leave UCX out"));
  }
  version = version_string();
  Dl_info found{};
  if (::dladdr(reinterpret_cast<void*>(worker_create), &found) != 0 && found.dli_fname != nullptr)
    path = found.dli_fname;
  return {};
}

Result<const UcpLibrary*> UcpLibrary::load() {
  // The object is static because the library is loaded once per process; the object holds addresses within it.
  static std::mutex mutex;
  static std::optional<UcpLibrary> loaded;
  const std::lock_guard lock(mutex);
  if (!loaded) {
    UcpLibrary library;
    TRY(library.open());
    loaded = std::move(library);
  }
  return &*loaded;
}

Error ucx_error(const UcpLibrary& ucp, std::string_view what, ucs_status_t status, ErrorScope scope) {
  ErrorCode code = ErrorCode::unavailable;
  Initiator initiator = Initiator::local;
  switch (status) {
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_REJECTED:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_NOT_CONNECTED: initiator = Initiator::peer; break;
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_EXCEEDS_LIMIT: code = ErrorCode::overloaded; break;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_UNSUPPORTED: code = ErrorCode::invalid_argument; break;
    case UCS_ERR_MESSAGE_TRUNCATED:
    case UCS_ERR_INVALID_ADDR:
      code = ErrorCode::protocol_error;
      initiator = Initiator::peer;
      break;
    default: break;
  }
  return {code, scope, initiator, 0, std::string(what) + ": UCX: " + ucp.status_string(status)};
}

}  // namespace hawser::transport
