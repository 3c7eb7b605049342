#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"
#include "hawser/interceptor.h"
#include "hawser/task.h"

// Records requests of a running server, for `hawser record` and `hawser replay`. Component hawser::observe.
// docs/recordings.md.
//
//   hawser::Recorder recorder;
//   server.use(recorder.calls());                               // The last interceptor: it sees what handlers see.
//   hawser::enable_pages(server, {.change_token_file = path, .recorder = recorder});
//   // Then: hawser record HOST:PORT FILE --token-file PATH
namespace hawser {

struct RecorderOptions {
  static constexpr std::size_t request_bytes_limit = std::size_t{128} << 20;

  // Bytes of requests that wait to be fetched, and of copies of requests whose calls have not ended. Further requests
  // are not recorded, and counted.
  std::size_t queue_bytes_max = std::size_t{8} << 20;
  // Bytes of one request: arguments, attachment and metadata. Larger ones are not recorded, and counted. At most
  // request_bytes_limit, so that `hawser replay` reads each record.
  std::size_t request_bytes_max = std::size_t{1} << 20;
  // Bounds for the streams of one call: bytes of the recorded items, at most request_bytes_limit, and number of items.
  // An item of the caller counts its bytes and 21 bytes more. An item of the handler counts 21 bytes. Later items are
  // not recorded, and the record is marked as recorded in part. The items count in queue_bytes_max until they are
  // fetched. The first item that does not fit there ends the recording of its call's streams too.
  std::size_t stream_bytes_max = std::size_t{1} << 20;
  std::size_t stream_items_max = 10'000;
  // Metadata whose key contains one of these words, compared without case, is not recorded.
  std::vector<std::string> secrets = {"authorization", "cookie",  "token",  "secret", "password",
                                      "credential",    "api-key", "apikey", "session"};
};

// Keeps requests while somebody fetches them: name of the method, arguments, metadata, times, outcome, and size and
// CRC32C of the reply. Of streams it keeps the items of the caller, and size and CRC32C of those of the handler, with
// their times. Costs one comparison for each call at other times. Routes of HTTP are not recorded. A value: copies
// share the recording. Any thread.
class Recorder {
 public:
  // Throws std::invalid_argument if a limit is 0.
  explicit Recorder(RecorderOptions options = {});

  struct State;
  struct Calls {
    Task<Result<void>> operator()(IncomingCall& call, Next next) const;
    bool skips(MetadataView metadata) const noexcept;
    std::shared_ptr<State> recorder;
  };
  Calls calls() const { return {state_}; }

  struct Part {
    std::string records = {};    // In the form of docs/recordings.md, without the beginning of the file.
    std::uint64_t recorded = 0;  // Since the recording began, like the next two.
    std::uint64_t dropped = 0;   // The queue was full.
    // Larger than request_bytes_max; calls with streams, if `streams` is false; or JSON that was not converted.
    std::uint64_t skipped = 0;
  };
  // Takes the requests that were recorded since the last call of take(). The first take() with a name begins a
  // recording of `ratio` of the calls, from 0 to 1. `streams`: calls with streams are recorded, too. The recording ends
  // with `last`, or 60 s after the latest take(). With `last`, calls with streams that have not ended are returned with
  // the items so far. Fails with `overloaded` while another recording runs, and with `invalid_argument` if the name is
  // empty or longer than 64 bytes, or if `ratio` is out of range. Any thread.
  Result<Part> take(std::string_view recording, double ratio = 1, bool last = false, bool streams = false) const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace hawser
