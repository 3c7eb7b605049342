#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "bench/load/events.h"
#include "bench/run/options.h"

namespace hawser::bench {

// Serves at `listen` until a signal ends it. Writes an event with its address, or with the error. Returns false if it
// could not serve.
bool play_server(const RunOptions& options, std::string_view transport, Wait wait, const std::string& listen,
                 const std::function<void(const Event&)>& notify);

}  // namespace hawser::bench
