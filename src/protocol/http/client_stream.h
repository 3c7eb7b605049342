#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "exec/condition.h"
#include "hawser/http_client.h"
#include "hawser/task.h"
#include "hawser/timer.h"
#include "protocol/http/client_connection.h"
#include "protocol/http/client_request.h"
#include "protocol/http/connection_pool.h"
#include "protocol/http/gzip_stream.h"
#include "protocol/http/stream_deadlines.h"
#include "protocol/http/upload_body.h"

namespace hawser::protocol::http {

// The request of an HttpClientStream, which owns it together with the operations that wait. Loop's thread only.
class ClientStream final : ConnectionPool::Work {
 public:
  ClientStream(std::shared_ptr<ConnectionPool> pool, HttpClientRequest request, ClientTarget target,
               std::optional<HttpUpload> upload);
  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;

  // HttpClient::open(), or upload() if there is an `upload`.
  static Task<Result<HttpClientStream>> open(std::shared_ptr<ConnectionPool> pool, HttpClientRequest request,
                                             std::optional<HttpUpload> upload);
  static Task<Result<int>> wait_status(std::shared_ptr<ClientStream> self);
  static Task<Result<std::string>> read(std::shared_ptr<ClientStream> self);
  // Sends a part of the body; the last one may be empty.
  static Task<Result<void>> write(std::shared_ptr<ClientStream> self, std::string_view bytes, bool last);
  // The HttpClientStream is destroyed.
  void end();

  const HttpClientResponse& response() const noexcept { return response_; }

 private:
  struct Stopped {
    ClientStream& stream;
    void operator()() const { stream.cancel("was cancelled"); }
  };
  using Direction = StreamDeadlines::Direction;
  // One operation of each direction runs at a time.
  class Operation {
   public:
    Operation(ClientStream& stream, Direction direction);
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;
    ~Operation() { stream_.deadlines_.end(direction_); }

   private:
    ClientStream& stream_;
    const Direction direction_;
  };
  // Ends the request if the coroutine that owns the bytes that are being sent is destroyed.
  struct Sending {
    ~Sending() {
      if (stream != nullptr) stream->abandon();
    }
    ClientStream* stream;
  };

  void on_loop_end() noexcept override;
  Loop& loop() const noexcept { return pool_->loop(); }
  Task<void> connect();
  Task<void> connect_and_begin();
  // Returns false if the request may be sent again.
  Task<bool> begin(std::unique_ptr<ClientConnection> connection, bool reused);

  // Takes the head of the response, if it has arrived.
  void take_head();
  // The next bytes of the body; empty if none have arrived.
  Result<std::string> next_part();
  Result<std::string> counted(std::string part);
  // The connection has finished, and all bytes of the response have been taken.
  void settle();
  // The body can't be sent any more: the error of write().
  std::optional<Error> sending_error() const;
  std::optional<Error> misuse_of_write(std::string_view bytes, bool last) const;
  // Fails this and all later operations. The connection closes in the next tick, because the connection
  // itself may be the caller.
  void fail_all(Error error);
  void cancel(std::string_view why);
  void abandon() noexcept;
  void release() noexcept;
  // Restarts the timer.
  void watch();
  void check() noexcept;
  // The time at which the connection last moved a byte.
  Time moved() const noexcept;
  std::string execution() const { return sent_ ? "; it may have been executed" : "; it was not sent"; }

  const std::shared_ptr<ConnectionPool> pool_;
  const HttpClientRequest request_;
  const ClientTarget target_;
  const std::string head_;
  exec::Condition changed_;
  ConnectionPool::Place place_;
  std::unique_ptr<ClientConnection> connection_;  // Null before, and when nothing more comes from it.
  bool opened_ = false;                           // HttpClient::open() or upload() is complete.
  bool sent_ = false;                             // A connection has been asked to send.
  bool ended_ = false;                            // The whole response has been taken.
  std::optional<Error> error_;

  HttpClientResponse response_;  // Its head.
  std::unique_ptr<BodyInflater> inflater_;
  std::uint64_t body_bytes_ = 0;
  std::size_t turn_bytes_ = 0;  // Bytes that were read or written since the loop last ran something else.

  const std::optional<HttpUpload> upload_;
  UploadBody body_;        // Done if there is no upload.
  bool all_sent_ = false;  // The last write() was complete when connection_ became null.

  StreamDeadlines deadlines_;
  MemberTimer<&ClientStream::check> timer_;
  std::optional<std::stop_callback<Stopped>> on_stop_;
};

}  // namespace hawser::protocol::http
