#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/service.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "hawser/protobuf_controller.h"

// One call to several channels at once, with the functions that programs of bRPC use. Component hawser::channel.
namespace hawser::pb {

// The call to one channel of a ParallelChannel.
struct SubCall {
  enum Flags : std::uint8_t { DELETE_REQUEST = 1, DELETE_RESPONSE = 2, SKIP_SUB_CHANNEL = 4 };

  SubCall() noexcept = default;  // Bad(): ends the whole call with EREQUEST.
  SubCall(const google::protobuf::MethodDescriptor* m, const google::protobuf::Message* in,
          google::protobuf::Message* out, int with) noexcept
      : method(m), request(in), response(out), flags(with) {}
  static SubCall Bad() noexcept { return {}; }
  static SubCall Skip() noexcept { return {nullptr, nullptr, nullptr, SKIP_SUB_CHANNEL}; }
  bool is_bad() const noexcept { return !is_skip() && (!method || !request || !response); }
  bool is_skip() const noexcept { return (flags & SKIP_SUB_CHANNEL) != 0; }

  const google::protobuf::MethodDescriptor* method = nullptr;
  const google::protobuf::Message* request = nullptr;  // Not used after CallMethod().
  google::protobuf::Message* response = nullptr;       // Valid until the call has ended.
  int flags = 0;                                       // The messages that the call deletes.
};

// Makes the call to one channel of `channel_count` from the whole call. Threads call it at once.
class CallMapper {
 public:
  virtual ~CallMapper() = default;
  virtual SubCall Map(int channel_index, int channel_count, const google::protobuf::MethodDescriptor* method,
                      const google::protobuf::Message* request, google::protobuf::Message* response) = 0;
};

// Adds the response of one channel to that of the whole call: in the order of the channels, one after the other, for
// each call that has not failed. Calls of different controllers merge at once.
class ResponseMerger {
 public:
  enum Result : std::uint8_t {
    MERGED,
    FAIL,      // The call to this channel counts as failed.
    FAIL_ALL,  // The whole call ends with ERESPONSE.
  };
  virtual ~ResponseMerger() = default;
  // May cancel the call: no further response is merged, and it ends with ECANCELED. Must not destroy or reset its
  // controller.
  virtual Result Merge(google::protobuf::Message* response, const google::protobuf::Message* sub_response) = 0;
  // Called in place of Merge(), with the attachments of both responses: it may add to `attachment`, which becomes the
  // response's attachment of the whole call, and is empty if the call fails. `sub_attachment` is that of the part. The
  // default calls Merge() and adds nothing.
  virtual Result MergeWithAttachment(google::protobuf::Message* response, Attachment& attachment,
                                     const google::protobuf::Message* sub_response, const Attachment& sub_attachment);
};

enum ChannelOwnership : std::uint8_t { OWNS_CHANNEL, DOESNT_OWN_CHANNEL };

struct ParallelChannelOptions {
  // The timeout of the whole call, unless its controller has one. Negative: no deadline. Those of the channels are not
  // used.
  std::int64_t timeout_ms = 500;
  // The call fails as soon as so many of its channels have failed; the others are cancelled then. Negative: it fails if
  // all have failed.
  int fail_limit = -1;
  // The call ends as soon as so many of its channels have succeeded; the others are cancelled then. The responses that
  // have arrived are merged, and the call fails only if all its parts have failed or were not merged. At least 1 is
  // used. Negative: the call waits for all. Not used with a fail_limit.
  int success_limit = -1;
};

// Calls all its channels at once and merges their responses. Several threads may call at once.
//
// The rules are those of Channel (hawser/protobuf_channel.h). The call ends when all its parts have ended. If it fails,
// the controller has the error of the parts when all failed ones have the same code, otherwise ETOOMANYFAILS; its text
// has each of them. The request's attachment, metadata and compression go to every channel. Attachments of responses
// are those of Controller::sub(), and mergers receive them.
class ParallelChannel final : public google::protobuf::RpcChannel {
 public:
  ParallelChannel();
  ParallelChannel(const ParallelChannel&) = delete;
  ParallelChannel& operator=(const ParallelChannel&) = delete;
  // Also while calls are in flight: they go on. A channel that it does not own must stay valid until they have ended.
  ~ParallelChannel() override;

  // Null: the defaults. Returns 0. Called before the first call.
  int Init(const ParallelChannelOptions* options);
  // `channel` is a Channel or a ParallelChannel, and may be added several times. With OWNS_CHANNEL it is deleted once.
  // Without a mapper, the channel receives the request of the whole call. Without a merger, the response is merged with
  // MergeFrom(). Both are kept. Called before the first call. Returns 0, or -1 if `channel` is null.
  int AddChannel(google::protobuf::RpcChannel* channel, ChannelOwnership ownership,
                 std::shared_ptr<CallMapper> mapper = {}, std::shared_ptr<ResponseMerger> merger = {});
  // The same for objects made with new, which it deletes once, also if they are added several times.
  int AddChannel(google::protobuf::RpcChannel* channel, ChannelOwnership ownership, CallMapper* mapper,
                 ResponseMerger* merger);
  int channel_count() const noexcept;
  // Removes the channels. No call may begin at the same time.
  void Reset();

  // `controller` must be a hawser::pb::Controller.
  void CallMethod(const google::protobuf::MethodDescriptor* method, google::protobuf::RpcController* controller,
                  const google::protobuf::Message* request, google::protobuf::Message* response,
                  google::protobuf::Closure* done) override;

 private:
  struct State;
  struct Parts;
  std::shared_ptr<State> state_;
};

}  // namespace hawser::pb
