#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "hawser/error.h"

namespace hawser::transport {

// Functions of libucp. The library is loaded when the first UCX transport attaches, and stays loaded. A program that
// does not use UCX therefore does not get its signal handlers, and runs on machines without UCX.
struct UcpLibrary {
  // Loads the library once per process. The error names what is missing and the remedy. Thread-safe.
  static Result<const UcpLibrary*> load();

  std::string version;
  std::string path;

  decltype(&::ucp_config_read) config_read;
  decltype(&::ucp_config_modify) config_modify;
  decltype(&::ucp_config_release) config_release;
  decltype(&::ucp_init_version) init_version;
  decltype(&::ucp_cleanup) cleanup;
  decltype(&::ucp_context_print_info) context_print_info;
  decltype(&::ucp_worker_create) worker_create;
  decltype(&::ucp_worker_destroy) worker_destroy;
  decltype(&::ucp_worker_query) worker_query;
  decltype(&::ucp_worker_release_address) worker_release_address;
  decltype(&::ucp_worker_get_efd) worker_get_efd;
  decltype(&::ucp_worker_arm) worker_arm;
  decltype(&::ucp_worker_progress) worker_progress;
  decltype(&::ucp_worker_flush_nbx) worker_flush_nbx;
  decltype(&::ucp_worker_set_am_recv_handler) worker_set_am_recv_handler;
  decltype(&::ucp_listener_create) listener_create;
  decltype(&::ucp_listener_destroy) listener_destroy;
  decltype(&::ucp_listener_query) listener_query;
  decltype(&::ucp_listener_reject) listener_reject;
  decltype(&::ucp_ep_create) ep_create;
  decltype(&::ucp_ep_flush_nbx) ep_flush_nbx;
  decltype(&::ucp_ep_close_nbx) ep_close_nbx;
  decltype(&::ucp_ep_print_info) ep_print_info;
  decltype(&::ucp_am_send_nbx) am_send_nbx;
  decltype(&::ucp_am_recv_data_nbx) am_recv_data_nbx;
  decltype(&::ucp_am_data_release) am_data_release;
  decltype(&::ucp_request_free) request_free;
  decltype(&::ucs_status_string) status_string;

 private:
  Result<void> open();
};

// Converts a UCX status to an Error. `what` is the operation that failed.
Error ucx_error(const UcpLibrary& ucp, std::string_view what, ucs_status_t status,
                ErrorScope scope = ErrorScope::connection);

}  // namespace hawser::transport
