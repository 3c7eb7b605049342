#include <utility>

#include "protobuf/channel/connection.h"
#include "protobuf/channel/message_call.h"
#include "protobuf/channel/site.h"
#include "rpc/client/client_access.h"
#include "rpc/client/further_streams.h"

// Calls that open a stream of StreamCreate().
namespace hawser::pb {

namespace {

// The peer's time to close a stream that this side has closed.
constexpr Duration linger = std::chrono::seconds(5);

// The reply opens the stream. A second one is the result of a handler of this library: the last message.
class StreamCall final : public MessageCall, public rpc::FurtherStreams {
 public:
  StreamCall(detail::ClientLink& link, const std::string& name, const Buffer& body, const CallOptions& options,
             bool reads, std::size_t streams)
      : MessageCall(link, name, body, options), further_(streams - 1) {
    request_.streams = request_.streams_in = true;
    request_.streams_out = reads;
  }
  ~StreamCall() { withdraw(); }

  void decode(const detail::Received& reply) override {
    if (answered_.is_set()) {
      last_ = copy_of(reply).body;
    } else {
      MessageCall::decode(reply);
      answered_.set();
    }
  }
  std::size_t further_streams() const noexcept override { return further_; }
  void set_further(Cores cores) noexcept override { cores_ = std::move(cores); }
  std::shared_ptr<detail::StreamCore> core(std::size_t index) const {
    return index == 0 ? stream()->shared_from_this() : cores_.at(index - 1);
  }
  Event& answered() noexcept { return answered_; }
  Buffer take_last() noexcept { return std::exchange(last_, {}); }

 private:
  const std::size_t further_;  // Number of the streams beside the first.
  Cores cores_;
  Event answered_;
  Buffer last_;
};

}  // namespace

// The streams of a call, and the call. Its coroutines share it.
struct ChannelSite::StreamRun {
  StreamRun(const Shared& on, const Work& work)
      : site(work.site),
        connection(on),
        compression(work.compression),
        method(work.method),
        request(work.request),
        attachment(work.attachment) {
    options.timeout = forever;
    options.token = stop.get_token();
    options.attachment = attachment.bytes();
    options.metadata = work.metadata;
    call.emplace(detail::ClientAccess::link(on->client), method->name, request, options,
                 work.streams.front()->has_handler(), work.streams.size());
  }

  const std::shared_ptr<ChannelSite> site;  // The stream is open longer than its channel may exist.
  const Shared connection;
  const CompressType compression;
  const std::shared_ptr<const MethodInfo> method;
  const Buffer request;
  const Buffer attachment;
  std::stop_source stop;
  CallOptions options;
  std::vector<OwnedStream> streams;
  bool ended = false;  // The call has ended.
  std::optional<StreamCall> call;
  Scope others;  // Carries the further streams. Last, with the next one: their tasks use the members above.
  Scope drained;
};

Task<Result<RawReply>> ChannelSite::open_stream(Work& work, Shared connection, std::stop_token token) {
  const auto run = std::make_shared<StreamRun>(connection, work);
  scope_.spawn(complete(run));
  const Result<void> waited = co_await run->call->answered().wait(token);
  if (!waited) {
    run->stop.request_stop();
    co_return fail(waited.error());
  }
  Result<RawReply> reply = run->call->take();
  if (!reply) co_return reply;
  run->streams = std::move(work.streams);
  scope_.spawn(carry(run));
  co_return reply;
}

// Waits for the end of the call.
Task<void> ChannelSite::complete(std::shared_ptr<StreamRun> run) {
  co_await run->call->executed();
  run->ended = true;
  run->call->answered().set();
}

Task<void> ChannelSite::carry_one(StreamRun& run, std::size_t index) {
  StreamState& stream = *run.streams[index];
  co_await stream.carry(loop_, run.call->core(index), linger);
  if (Buffer last = index == 0 ? run.call->take_last() : Buffer(); !last.empty()) {
    std::vector<Buffer> batch;
    batch.push_back(std::move(last));
    co_await stream.deliver(loop_, std::move(batch));
  }
  co_await stream.finish_on(loop_);
  // The call goes on as long as another stream of it.
  if (run.streams.size() > 1) run.drained.spawn(drain(run.call->core(index)));
}

Task<void> ChannelSite::drain(std::shared_ptr<detail::StreamCore> core) {
  for (;;) {
    co_await core->until_readable();
    const Result<std::optional<detail::StreamCore::Item>> item = core->take();
    if (!item || !*item) co_return;
  }
}

Task<void> ChannelSite::carry(std::shared_ptr<StreamRun> run) {
  for (std::size_t i = 1; i < run->streams.size(); ++i) run->others.spawn(carry_one(*run, i));
  co_await carry_one(*run, 0);
  co_await run->others.join();
  if (!run->ended) run->stop.request_stop();
  release(run->compression, run->connection);
}

}  // namespace hawser::pb
