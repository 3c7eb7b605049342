#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "bench/load/events.h"
#include "bench/run/options.h"

namespace hawser::bench {

// Serves at `listen` until SIGTERM or SIGINT. Tells where it listens, or what failed. False if it could not serve.
bool play_server(const Options& options, std::string_view transport, Wait wait, const std::string& listen,
                 const std::function<void(const Event&)>& notify);

}  // namespace hawser::bench
