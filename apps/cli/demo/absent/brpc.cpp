#include "cli/demo/protocols.h"

// A build without the protocol.
namespace hawser::cli {

void enable_baidu_std(Server&) {}
std::optional<ClientOptions> demo_baidu_std_options() { return std::nullopt; }

}  // namespace hawser::cli
