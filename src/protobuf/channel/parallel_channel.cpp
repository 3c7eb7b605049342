#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "base/decimal_text.h"
#include "hawser/protobuf_parallel_channel.h"
#include "protobuf/client_call.h"

namespace hawser::pb {

struct ParallelChannel::State {
  struct Sub {
    google::protobuf::RpcChannel* channel;
    std::shared_ptr<google::protobuf::RpcChannel> owned;  // Null: somebody else's.
    std::shared_ptr<CallMapper> mapper;
    std::shared_ptr<ResponseMerger> merger;
  };
  ParallelChannelOptions options;
  std::vector<Sub> subs;
};

// One call of a ParallelChannel. The closures of its parts share it.
struct ParallelChannel::Parts : std::enable_shared_from_this<Parts> {
  struct Part {
    std::shared_ptr<Controller> controller;
    SubCall call;
    const State::Sub* to;
    int index;  // The channel's.
  };
  class Ended final : public google::protobuf::Closure {
   public:
    Ended(std::shared_ptr<Parts> parts, std::size_t part) : parts_(std::move(parts)), part_(part) {}
    void Run() override {
      const std::unique_ptr<Ended> self(this);
      parts_->on_end(part_);
    }

   private:
    const std::shared_ptr<Parts> parts_;
    const std::size_t part_;
  };

  explicit Parts(State made_by) : state(std::move(made_by)) {}
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  ~Parts() {
    for (const Part& part : parts) discard(part.call);
  }
  static void discard(const SubCall& call) {
    if ((call.flags & SubCall::DELETE_REQUEST) != 0) delete call.request;
    if ((call.flags & SubCall::DELETE_RESPONSE) != 0) delete call.response;
  }
  void cancel() const {
    for (const CallId& id : ids) StartCancel(id);
  }
  void begin();
  void on_end(std::size_t part);
  void release();
  std::optional<Error> merge(google::protobuf::Message& response, Attachment& attachment) const;
  static Error cancelled() { return Error::of_call(hawser::ErrorCode::cancelled, "the caller cancelled the call"); }
  Error failure(std::vector<std::pair<int, const Error*>> failed) const;

  const State state;  // A copy: it keeps the channels.
  std::shared_ptr<ClientCall> call;
  std::vector<Part> parts;
  std::vector<CallId> ids;
  int fail_limit = 0;
  int success_limit = 0;  // 0: none.
  std::atomic<int> failures{0};
  std::atomic<int> successes{0};
  std::atomic<std::size_t> remaining{1};  // Parts that have not ended, and one while they begin.
};

void ParallelChannel::Parts::begin() {
  remaining += parts.size();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    part.to->channel->CallMethod(part.call.method, part.controller.get(), part.call.request, part.call.response,
                                 new Ended(shared_from_this(), i));
  }
  release();
}

void ParallelChannel::Parts::on_end(std::size_t part) {
  const bool failed = parts[part].controller->Failed();
  if (failed ? ++failures == fail_limit : ++successes == success_limit) cancel();
  release();
}

void ParallelChannel::Parts::release() {
  if (--remaining != 0) return;
  std::vector<std::shared_ptr<const Controller>> controllers;
  for (const Part& part : parts) controllers.push_back(part.controller);
  call->end_merged(controllers, [this](google::protobuf::Message& response, Attachment& attachment) {
    return merge(response, attachment);
  });
}

std::optional<Error> ParallelChannel::Parts::merge(google::protobuf::Message& response, Attachment& attachment) const {
  const Error not_merged = Error::application(ERESPONSE, "its response was not merged");
  std::vector<std::pair<int, const Error*>> failed;
  for (const Part& part : parts) {
    if (part.controller->Failed()) failed.emplace_back(part.index, &*part.controller->error());
  }
  if (static_cast<int>(failed.size()) >= fail_limit) return failure(std::move(failed));
  for (const Part& part : parts) {
    if (part.controller->Failed()) continue;
    ResponseMerger::Result result = ResponseMerger::MERGED;
    if (part.to->merger != nullptr) {
      const Attachment& received = std::as_const(*part.controller).response_attachment();
      result = part.to->merger->MergeWithAttachment(&response, attachment, part.call.response, received);
    } else if (part.call.response != &response) {
      response.MergeFrom(*part.call.response);
    }
    if (call->cancelled()) return cancelled();
    if (result == ResponseMerger::FAIL_ALL) {
      return Error::application(ERESPONSE, "the response of channel " + std::to_string(part.index) +
                                               " was not merged, and its merger failed the whole call");
    }
    if (result == ResponseMerger::FAIL) failed.emplace_back(part.index, &not_merged);
  }
  if (static_cast<int>(failed.size()) >= fail_limit) return failure(std::move(failed));
  return std::nullopt;
}

Error ParallelChannel::Parts::failure(std::vector<std::pair<int, const Error*>> failed) const {
  if (call->cancelled()) return cancelled();
  // Parts that the limit of failures has cancelled are not causes.
  if (failed.size() > 1) {
    std::vector<std::pair<int, const Error*>> causes = failed;
    std::erase_if(causes, [](const auto& one) { return one.second->code == hawser::ErrorCode::cancelled; });
    if (!causes.empty()) failed = std::move(causes);
  }
  std::string text = std::to_string(failed.size()) + " of " + count_text(parts.size(), "channel") +
                     " failed, and the call fails if " + std::to_string(fail_limit) + " do:";
  bool alike = true;
  for (const auto& [index, error] : failed) {
    text += " [channel " + std::to_string(index) + ": " + error->text + "]";
    alike = alike && error->code == failed.front().second->code &&
            error->application_code == failed.front().second->application_code;
  }
  if (!alike) return Error::application(ETOOMANYFAILS, std::move(text));
  Error same = *failed.front().second;
  same.text = std::move(text);
  return same;
}

ResponseMerger::Result ResponseMerger::MergeWithAttachment(google::protobuf::Message* response, Attachment&,
                                                           const google::protobuf::Message* sub_response,
                                                           const Attachment&) {
  return Merge(response, sub_response);
}

ParallelChannel::ParallelChannel() : state_(std::make_shared<State>()) {}
ParallelChannel::~ParallelChannel() = default;

int ParallelChannel::Init(const ParallelChannelOptions* options) {
  state_->options = options != nullptr ? *options : ParallelChannelOptions();
  return 0;
}

int ParallelChannel::channel_count() const noexcept { return static_cast<int>(state_->subs.size()); }

void ParallelChannel::Reset() { state_->subs.clear(); }

int ParallelChannel::AddChannel(google::protobuf::RpcChannel* channel, ChannelOwnership ownership,
                                std::shared_ptr<CallMapper> mapper, std::shared_ptr<ResponseMerger> merger) {
  if (channel == nullptr) return -1;
  State::Sub sub{.channel = channel, .owned = {}, .mapper = std::move(mapper), .merger = std::move(merger)};
  if (ownership == OWNS_CHANNEL) {
    for (const State::Sub& other : state_->subs) {
      if (other.channel == channel && other.owned != nullptr) sub.owned = other.owned;
    }
    if (sub.owned == nullptr) sub.owned.reset(channel);
  }
  state_->subs.push_back(std::move(sub));
  return 0;
}

int ParallelChannel::AddChannel(google::protobuf::RpcChannel* channel, ChannelOwnership ownership, CallMapper* mapper,
                                ResponseMerger* merger) {
  std::shared_ptr<CallMapper> kept_mapper;
  std::shared_ptr<ResponseMerger> kept_merger;
  for (const State::Sub& other : state_->subs) {
    if (mapper != nullptr && other.mapper.get() == mapper) kept_mapper = other.mapper;
    if (merger != nullptr && other.merger.get() == merger) kept_merger = other.merger;
  }
  if (kept_mapper == nullptr && mapper != nullptr) kept_mapper.reset(mapper);
  if (kept_merger == nullptr && merger != nullptr) kept_merger.reset(merger);
  return AddChannel(channel, ownership, std::move(kept_mapper), std::move(kept_merger));
}

void ParallelChannel::CallMethod(const google::protobuf::MethodDescriptor* method,
                                 google::protobuf::RpcController* base, const google::protobuf::Message* request,
                                 google::protobuf::Message* response, google::protobuf::Closure* done) {
  const std::shared_ptr<ClientCall> call = ClientCall::start(base, response, done);
  if (call == nullptr || call->refuse_to_block(done)) return;
  const auto refuse = [&](hawser::ErrorCode code, std::string text) {
    call->refuse(Error::of_call(code, std::move(text)));
  };
  const auto& controller = static_cast<const Controller&>(*base);
  const auto parts = std::make_shared<Parts>(*state_);  // The call may destroy this channel.
  const State& state = parts->state;
  if (state.subs.empty()) {
    return refuse(hawser::ErrorCode::invalid_argument, "this channel has no channels: call AddChannel() first");
  }
  parts->call = call;
  response->Clear();
  const int count = static_cast<int>(state.subs.size());
  for (int i = 0; i < count; ++i) {
    const State::Sub& to = state.subs[static_cast<std::size_t>(i)];
    const SubCall sub = to.mapper ? to.mapper->Map(i, count, method, request, response)
                                  : SubCall(method, request, response->New(), SubCall::DELETE_RESPONSE);
    if (sub.is_skip()) {
      Parts::discard(sub);
      continue;
    }
    if (sub.is_bad()) {
      Parts::discard(sub);
      return refuse(hawser::ErrorCode::invalid_argument,
                    "the mapper of channel " + std::to_string(i) + " gave a call without method, request or response");
    }
    auto part = std::make_shared<Controller>();
    part->request_attachment_.append(controller.request_attachment_);
    part->request_metadata_ = controller.request_metadata_;
    part->compress_type_ = controller.compress_type_;
    part->max_retry_ = controller.max_retry_;
    part->backup_request_ms_ = controller.backup_request_ms_;
    part->timeout_ms_ = controller.timeout_ms_.value_or(state.options.timeout_ms);
    parts->ids.push_back(part->call_id());
    parts->parts.push_back({std::move(part), sub, &to, i});
  }
  if (parts->parts.empty()) return refuse(hawser::ErrorCode::cancelled, "the mappers skipped all channels");
  const int made = static_cast<int>(parts->parts.size());
  parts->fail_limit = state.options.fail_limit < 0 ? made : std::clamp(state.options.fail_limit, 1, made);
  if (state.options.fail_limit < 0 && state.options.success_limit >= 0) {
    parts->success_limit = std::max(state.options.success_limit, 1);
  }
  call->made_of([ids = parts->ids] {
    for (const CallId& id : ids) StartCancel(id);
  });
  if (call->cancelled()) parts->cancel();
  parts->begin();
  if (done == nullptr) call->wait();
}

}  // namespace hawser::pb
