#include "bench/load/tls.h"

namespace hawser::bench {

bool has_tls() noexcept { return false; }
BenchTlsFiles issue_tls_files(const std::string&) { return {}; }
std::shared_ptr<transport::ServerSecurity> server_security(const RunOptions&, std::string_view) { return nullptr; }
std::shared_ptr<transport::ClientSecurity> client_security(const RunOptions&, std::string_view) { return nullptr; }

}  // namespace hawser::bench
