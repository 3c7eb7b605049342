#include "bench/load/baidu_std.h"

// For a library that was built without baidu_std.
namespace hawser::bench {

std::unique_ptr<BaiduStdCaller> make_baidu_std_caller(Loop&, const ClientOptions&) { return nullptr; }
void enable_baidu_std(Server&) {}

}  // namespace hawser::bench
