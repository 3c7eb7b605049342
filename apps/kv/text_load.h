#pragma once

#include <string>

#include "hawser/error.h"
#include "kv/workload.h"

namespace hawser::kv {

// Clients of the protocol of Redis (RESP2) or of memcached's text protocol, on the calling thread. Each of
// `options.connections` connections sends `options.in_flight` operations at once and the next ones when it has all
// replies, as redis-benchmark does with -P. Addresses: "HOST:PORT", "unix:/path", "unix:@name". Errors: the address has
// no server, the server refuses a command or closes a connection, or it sends nothing for ten seconds.

// Writes every key of the workload once.
Result<void> load_keys_by_text(const Measurement& run);
// Runs the workload for `options.seconds`, and counts in `run`. The latency of an operation is the time from the
// sending of its batch until its reply has been read.
Result<void> run_by_text(Measurement& run);

// Returns the process id of the server, as it reports it to INFO of Redis or to `stats` of memcached. Empty if
// it does not answer within two seconds.
std::string server_process(const std::string& address, bool memcached, const std::string& password = {});

}  // namespace hawser::kv
