#pragma once

namespace hawser::block {

// The memory of requests stays with the process when they end, up to 64 MiB of each thread that allocates: a request of
// 1 MiB in memory that is new from the system costs 257 page faults, which take longer than the request. Called before
// the first request.
void keep_request_memory() noexcept;

}  // namespace hawser::block
