#include "bench/load/protocols.h"

// For a library that was built without HTTP.
namespace hawser::bench {

std::unique_ptr<HttpCaller> make_http_caller(Loop&, const ClientOptions&) { return nullptr; }
void enable_http(Server&) {}

}  // namespace hawser::bench
