#include "cli/demo/protocols.h"

// A build without the protocol.
namespace hawser::cli {

void enable_baidu_std(Server&) {}
std::unique_ptr<DemoCaller> make_baidu_std_caller(Duration) { return nullptr; }

}  // namespace hawser::cli
