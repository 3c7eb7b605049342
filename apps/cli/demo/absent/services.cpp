#include "cli/demo/services.h"

// A build without protobuf.
namespace hawser::cli {

struct DemoServices::State {};

DemoServices::DemoServices() = default;
DemoServices::~DemoServices() = default;
void DemoServices::add_to(Server&) {}
bool DemoServices::available() noexcept { return false; }

}  // namespace hawser::cli
