#pragma once

#include <google/protobuf/service.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/context.h"
#include "hawser/error.h"
#include "hawser/metadata.h"
#include "hawser/time.h"

// The controller of calls to and of services of google::protobuf::Service, with the functions that programs of bRPC
// use. docs/from-brpc.md maps them.
namespace hawser::pb {

// Bytes that travel beside a request or a response. Used by one thread at a time.
class Attachment {
 public:
  Attachment() noexcept = default;
  explicit Attachment(Buffer bytes) noexcept : received_(std::move(bytes)) {}

  void append(std::string_view text) { grown().append(text); }
  void append(const Attachment& other) { append(as_text(other.bytes())); }
  void append(const void* data, std::size_t bytes) { append(std::string_view(static_cast<const char*>(data), bytes)); }
  void clear() noexcept;
  void swap(Attachment& other) noexcept { std::swap(*this, other); }
  // Valid until the next change.
  Bytes bytes() const noexcept { return received_.empty() ? as_bytes(std::string_view(text_)) : received_.bytes(); }
  operator Bytes() const noexcept { return bytes(); }
  std::size_t size() const noexcept { return bytes().size(); }
  bool empty() const noexcept { return bytes().empty(); }
  std::string to_string() const { return std::string(as_text(bytes())); }
  // The bytes without a copy. Empty afterwards.
  Buffer take();
  friend std::ostream& operator<<(std::ostream& out, const Attachment& attachment);

 private:
  std::string& grown();
  Buffer received_;   // Empty, or all bytes.
  std::string text_;  // All bytes, unless they are in received_.
};

enum CompressType : std::uint8_t {
  COMPRESS_TYPE_NONE = 0,
  COMPRESS_TYPE_SNAPPY = 1,
  COMPRESS_TYPE_GZIP = 2,
  COMPRESS_TYPE_ZLIB = 3,
};

// Values of Controller::ErrorCode() at a client, beside the values of errno and the codes of applications.
enum RpcErrorCode : std::int32_t {
  ENOSERVICE = 1001,
  ENOMETHOD = 1002,
  EREQUEST = 1003,
  ERPCAUTH = 1004,
  ETOOMANYFAILS = 1005,
  ERPCTIMEDOUT = 1008,
  EFAILEDSOCKET = 1009,  // The connection was lost after the request was sent: ErrorCode::outcome_unknown.
  EOVERCROWDED = 1011,
  EINTERNAL = 2001,
  ERESPONSE = 2002,
  ELOGOFF = 2003,
  ELIMIT = 2004,
};

struct ClientCall;
class StreamState;
struct StreamOptions;

// Names a call of a client, also after its end and after its controller has been destroyed. Any thread.
class CallId {
 public:
  CallId() noexcept = default;
  explicit CallId(std::shared_ptr<ClientCall> call) noexcept : call_(std::move(call)) {}

 private:
  friend void StartCancel(const CallId& id);
  friend void Join(const CallId& id);
  std::shared_ptr<ClientCall> call_;
};

// Cancels a call, from any thread: it ends with ECANCELED unless it has ended. A call that has not begun ends so when
// it begins.
void StartCancel(const CallId& id);
// Waits until a call has ended and its `done` has returned. Returns at once for a call that has not begun. A thread
// that runs a loop, such as one that runs a `done`, does not wait.
void Join(const CallId& id);

// Runs a closure when it is destroyed.
class ClosureGuard {
 public:
  ClosureGuard() noexcept = default;
  explicit ClosureGuard(google::protobuf::Closure* done) noexcept : done_(done) {}
  ClosureGuard(const ClosureGuard&) = delete;
  ClosureGuard& operator=(const ClosureGuard&) = delete;
  ~ClosureGuard() { reset(nullptr); }
  // Runs the closure and holds `done` in its place.
  void reset(google::protobuf::Closure* done) {
    if (auto* const old = std::exchange(done_, done)) old->Run();
  }
  google::protobuf::Closure* release() noexcept { return std::exchange(done_, nullptr); }
  bool empty() const noexcept { return done_ == nullptr; }

 private:
  google::protobuf::Closure* done_ = nullptr;
};

// A `done` that does nothing, for calls whose end nobody waits for, or Join() does.
google::protobuf::Closure* DoNothing();
using google::protobuf::NewCallback;

// The controller of one call. A client makes one for a call over a Channel, and may use it again after Reset(). A
// service receives one. Used by one thread at a time, except for IsCanceled() and StartCancel().
//
// A client keeps it until the call has ended: until CallMethod() has returned without `done`, otherwise until `done`
// runs. Destroying or resetting it earlier cancels the call; `done` then runs without a response.
class Controller final : public google::protobuf::RpcController {
 public:
  Controller();
  explicit Controller(Context& context);  // For the library: of a call that a server executes, until `done` has run.
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;
  ~Controller() override;

  // ---- Both sides ----
  // At a server: fails the call. The caller receives ErrorCode::application with the text and the code. Without a code
  // it is 0.
  void SetFailed(const std::string& text) override { SetFailed(0, text); }
  void SetFailed(std::int32_t code, const std::string& text);
  bool Failed() const override { return error_.has_value(); }
  std::string ErrorText() const override { return error_ ? error_->text : std::string(); }
  // At a client an RpcErrorCode, a value of errno, or the service's own code. 0: no error.
  std::int32_t ErrorCode() const { return code_; }
  const std::optional<Error>& error() const noexcept { return error_; }
  // At a server: true after the caller has cancelled the call, its deadline has passed, or its connection has ended. At
  // a client: true if the call has ended because it was cancelled.
  bool IsCanceled() const override;
  void Reset() override;
  Attachment& request_attachment() noexcept { return request_attachment_; }
  Attachment& response_attachment() noexcept { return response_attachment_; }
  const Attachment& response_attachment() const noexcept { return response_attachment_; }
  // The address of the other side; at a client the one given to Channel::Init().
  const std::string& remote_side() const noexcept { return peer_; }
  // Metadata of the request and, at a client, of the response.
  Metadata& request_metadata() noexcept { return request_metadata_; }
  const Metadata& response_metadata() const noexcept { return response_metadata_; }
  // The number that travels with the request as metadata "log-id". 0: none.
  std::uint64_t log_id() const noexcept;
  void set_log_id(std::uint64_t id);

  // ---- Servers ----
  // Runs `callback` once: when the call is cancelled, on the loop's thread, or else when `done` has run.
  void NotifyOnCancel(google::protobuf::Closure* callback) override;
  // Time at which the caller stops waiting; empty without a deadline.
  std::optional<Time> deadline() const noexcept { return deadline_; }
  // Sent beside the response, without a copy.
  void set_response_attachment(Buffer attachment) noexcept { response_attachment_ = Attachment(std::move(attachment)); }

  // ---- Clients: before the call. What is not set has the value of ChannelOptions. ----
  void set_timeout_ms(std::int64_t timeout_ms) noexcept { timeout_ms_ = timeout_ms; }  // Negative: no deadline.
  std::optional<std::int64_t> timeout_ms() const noexcept { return timeout_ms_; }
  void set_max_retry(int count) noexcept { max_retry_ = count; }
  std::optional<int> max_retry() const noexcept { return max_retry_; }
  void set_backup_request_ms(std::int64_t after_ms) noexcept { backup_request_ms_ = after_ms; }
  std::optional<std::int64_t> backup_request_ms() const noexcept { return backup_request_ms_; }
  void set_request_compress_type(CompressType type) noexcept { compress_type_ = type; }
  CompressType request_compress_type() const noexcept { return compress_type_; }

  // ---- Clients: during and after the call ----
  // Names the call that is in flight or has ended, or else the next one.
  CallId call_id();
  void StartCancel() override { pb::StartCancel(call_id()); }
  std::int64_t latency_us() const noexcept { return latency_us_; }
  int retried_count() const noexcept { return retried_count_; }
  bool has_backup_request() const noexcept { return backup_sent_; }
  // The calls that a ParallelChannel made for this one, in the order of its channels. None before the call has ended.
  int sub_count() const noexcept { return static_cast<int>(subs_.size()); }
  // Null if `index` is not below sub_count().
  const Controller* sub(int index) const noexcept {
    return index >= 0 && index < sub_count() ? subs_[static_cast<std::size_t>(index)].get() : nullptr;
  }

  // For the library: runs the callback of NotifyOnCancel() that has not run.
  void finish() noexcept;
  // For the library: the streams that are not open yet.
  std::vector<std::shared_ptr<StreamState>> take_streams() noexcept { return std::exchange(streams_, {}); }

 private:
  friend struct ClientCall;
  friend class Channel;
  friend class ParallelChannel;
  friend int StreamCreate(std::vector<std::uint64_t>& streams, int count, Controller& controller,
                          const StreamOptions* options);
  friend int StreamAccept(std::uint64_t* stream, Controller& controller, const StreamOptions* options);
  friend int StreamAccept(std::vector<std::uint64_t>& streams, Controller& controller, const StreamOptions* options);
  struct Cancellation;
  void unlink() noexcept;
  void drop_streams() noexcept;
  void make_streams(std::vector<std::uint64_t>& ids, std::size_t count, const StreamOptions* options);

  std::optional<Error> error_;
  std::int32_t code_ = 0;
  std::stop_token token_;
  Attachment request_attachment_;
  Attachment response_attachment_;
  Metadata request_metadata_;
  Metadata response_metadata_;
  std::string peer_;
  std::optional<Time> deadline_;
  std::unique_ptr<Cancellation> cancellation_;
  std::optional<std::int64_t> timeout_ms_;
  std::optional<int> max_retry_;
  std::optional<std::int64_t> backup_request_ms_;
  CompressType compress_type_ = COMPRESS_TYPE_NONE;
  std::shared_ptr<ClientCall> call_;
  std::int64_t latency_us_ = 0;
  int retried_count_ = 0;
  bool backup_sent_ = false;
  std::vector<std::shared_ptr<const Controller>> subs_;
  std::vector<std::shared_ptr<StreamState>> streams_;  // For the next call, or accepted by the service.
  // At a server: the number of streams that the caller has created and that were not accepted yet.
  std::size_t streams_offered_ = 0;
};

}  // namespace hawser::pb
