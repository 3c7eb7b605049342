#pragma once

#include <memory>
#include <string>

#include "hawser/background_loops.h"
#include "protobuf/channel/site.h"

// The sites of all channels of the process. Any thread.
namespace hawser::pb {

// The loop of all channels that name none. Channels and calls in flight keep it; with the last of them it ends.
std::shared_ptr<BackgroundLoops> default_loops();

// The site on one of `loops` whose address and options are the same by content; a new one if there is none. It ends
// with the last channel and the last call that keep it. Reads the files of ClientOptions::security. Throws
// std::bad_alloc.
std::shared_ptr<ChannelSite> shared_site(const std::shared_ptr<BackgroundLoops>& loops, const std::string& address,
                                         const ChannelOptions& options);

}  // namespace hawser::pb
