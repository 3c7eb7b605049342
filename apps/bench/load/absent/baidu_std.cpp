#include "bench/load/protocols.h"

// For a library that was built without baidu_std.
namespace hawser::bench {

std::unique_ptr<ProtocolCaller> make_baidu_std_caller(Loop&, const ClientOptions&) { return nullptr; }
void enable_baidu_std(Server&) {}

}  // namespace hawser::bench
