#include "cli/demo/protocols.h"

// A build without the protocol.
namespace hawser::cli {

void enable_baidu_std(Server&) {}

}  // namespace hawser::cli
