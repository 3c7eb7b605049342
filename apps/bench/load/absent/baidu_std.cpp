#include "bench/load/protocols.h"

// For a library that was built without baidu_std.
namespace hawser::bench {

std::optional<ClientOptions> baidu_std_options(const ClientOptions&) { return std::nullopt; }
void enable_baidu_std(Server&) {}

}  // namespace hawser::bench
