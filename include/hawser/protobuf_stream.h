#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <vector>

#include "hawser/protobuf_controller.h"

// Streams of calls over hawser::pb, with the names and the meaning of bRPC. docs/from-brpc.md maps them. The protocol
// is baidu_std. Every function may be called on any thread.
namespace hawser::pb {

using IOBuf = Attachment;
using StreamId = std::uint64_t;
using StreamIds = std::vector<StreamId>;
inline constexpr StreamId INVALID_STREAM_ID = ~StreamId{0};

// Receives what the peer writes to a stream. Its functions run one at a time for each stream, on the threads of a
// loop's offload pool (LoopOptions::offload_threads_max), where they may block. Only if the loop itself ends,
// on_closed() runs on the thread that ends it. The handler must live until on_closed() has returned.
class StreamInputHandler {
 public:
  virtual ~StreamInputHandler() = default;
  // `messages` are in the order in which they were written, and valid until this returns. The result is not used.
  virtual int on_received_messages(StreamId id, IOBuf* const messages[], std::size_t size) = 0;
  // Nothing has come for StreamOptions::idle_timeout_ms.
  virtual void on_idle_timeout(StreamId id) = 0;
  // Called once, at last: either side has closed the stream, or its call or connection has failed.
  virtual void on_closed(StreamId id) = 0;
};

struct StreamOptions {
  // Bytes that wait to be sent: StreamWrite() returns EAGAIN while there are as many. Not positive: no limit. In
  // addition, 2 MiB are on their way to the peer before it has consumed them.
  int max_buf_size = 2 << 20;
  long idle_timeout_ms = -1;              // Negative: on_idle_timeout() is not called.
  std::size_t messages_in_batch = 128;    // The most messages that on_received_messages() receives at once.
  StreamInputHandler* handler = nullptr;  // Null: the peer must not write.
};

// Creates the stream of the next call of `controller`, which opens it. It is closed if that call fails. Messages may be
// written before; they are sent when the stream is open. Returns 0, or -1 if the controller has a stream already or is
// a service's.
int StreamCreate(StreamId* stream, Controller& controller, const StreamOptions* options);
// Creates `count` streams of the next call, which have the same options and thus the same handler. Each of them is
// closed separately. `streams`, which must be empty, receives their ids; the service receives them in the same order.
// The call fails with EREQUEST if there are more than the server's BaiduStdOptions::streams_per_call_max (16 by
// default). Returns 0; or -1 as above, if `streams` is not empty, or if `count` is not from 1 to streams_per_call_max.
int StreamCreate(StreamIds& streams, int count, Controller& controller, const StreamOptions* options);
inline constexpr int streams_per_call_max = 256;  // Limit of a client.

// In a service, before `done`: accepts the stream that the caller has created. It is open as soon as `done` has run
// without an error; before, messages may be written. Returns 0, or -1 if the caller has created none or several, or it
// is accepted already.
int StreamAccept(StreamId* stream, Controller& controller, const StreamOptions* options);
// Accepts all streams that the caller has created, one or several, with the same options. `streams`, which must be
// empty, receives their ids in the caller's order. Returns 0; or -1 if the caller has created none, if they are
// accepted already, or if `streams` is not empty.
int StreamAccept(StreamIds& streams, Controller& controller, const StreamOptions* options);

// Sends a message, which is copied. Returns 0; EAGAIN if max_buf_size bytes wait to be sent: use StreamWait(); EINVAL
// if the stream is closed or unknown. A message beyond message_bytes_max of the channel or the server closes the
// stream.
int StreamWrite(StreamId stream, const IOBuf& message);

// Waits until StreamWrite() would not return EAGAIN. `due_time` is a time of CLOCK_REALTIME; null: for ever. Returns 0,
// ETIMEDOUT, ECONNRESET if the stream was closed meanwhile, EINVAL if it is closed or unknown, or EDEADLK on a thread
// that runs a loop, which must not wait. A handler that waits without a `due_time` lets a peer that does not read hold
// a thread of the pool for as long as its connection lasts.
int StreamWait(StreamId stream, const timespec* due_time);
// Calls `on_writable(stream, argument, error)` once with the result of that wait. It runs within this function if there
// is nothing to wait for, otherwise on a thread that may block. The time runs while the stream is open.
void StreamWait(StreamId stream, const timespec* due_time, void (*on_writable)(StreamId, void*, int), void* argument);

// Closes the stream after what was written has been sent. Messages that come later are dropped. Returns 0, or EINVAL if
// the stream is closed or unknown.
int StreamClose(StreamId stream);

}  // namespace hawser::pb
