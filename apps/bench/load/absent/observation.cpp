#include "bench/load/observation.h"

// For a library that was built without the pages.
namespace hawser::bench {

std::unique_ptr<Observation> observe(Server&) { return nullptr; }

}  // namespace hawser::bench
