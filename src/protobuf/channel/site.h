#pragma once

#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "hawser/brpc.h"
#include "hawser/client.h"
#include "hawser/protobuf.h"
#include "hawser/protobuf_channel.h"
#include "hawser/scope.h"
#include "hawser/sync.h"
#include "protobuf/client_call.h"
#include "protobuf/stream_state.h"

namespace hawser::pb {

// The name of a method and the facts of its response.
struct MethodInfo {
  std::string name;  // package.Service/Method
  MessageFacts response;
};

class ChannelSite;

// One call on its way through a loop. Destroying it ends the call.
struct Work {
  Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work();
  void end(Result<RawReply> reply);

  std::shared_ptr<ChannelSite> site;
  std::shared_ptr<ClientCall> call;  // Null once the call has ended.
  std::shared_ptr<const MethodInfo> method;
  Buffer request;
  Buffer attachment;
  Metadata metadata;
  CompressType compression = COMPRESS_TYPE_NONE;
  Duration timeout = forever;
  int max_retry = 0;
  std::vector<OwnedStream> streams;  // Empty: the call has none, or they are open.
  std::optional<Duration> backup_after;
};

// The connections of all channels with the same options, on one loop: shared_site(). Loop's thread only, except for the
// constructor. Channels and works keep it; the last one leaves its destruction to the loop.
class ChannelSite {
 public:
  ChannelSite(Loop& loop, std::string address, const ChannelOptions& options);
  ChannelSite(const ChannelSite&) = delete;
  ChannelSite& operator=(const ChannelSite&) = delete;
  ~ChannelSite();

  void begin(std::unique_ptr<Work> work);
  Loop& loop() const noexcept { return loop_; }
  // timeout_ms, max_retry and backup_request_ms are those of one of the channels.
  const ChannelOptions& options() const noexcept { return options_; }

 private:
  struct Connection;
  using Shared = std::shared_ptr<Connection>;

  Task<void> execute(std::unique_ptr<Work> work);
  Task<Result<RawReply>> attempts(Work& work, Time deadline, std::stop_token token);
  Task<Result<RawReply>> with_backup(Work& work, Time deadline, std::stop_token token);
  Task<Result<RawReply>> retrying(Work& work, Time deadline, std::stop_token token);
  Task<Result<RawReply>> attempt(Work& work, Time deadline, std::stop_token token);
  Task<Result<Shared>> acquire(CompressType compression, std::stop_token token);
  void release(CompressType compression, const Shared& connection);
  Task<void> connect(Shared connection);

  struct StreamRun;
  Task<Result<RawReply>> open_stream(Work& work, Shared connection, std::stop_token token);
  Task<void> complete(std::shared_ptr<StreamRun> run);
  Task<void> carry(std::shared_ptr<StreamRun> run);
  Task<void> carry_one(StreamRun& run, std::size_t index);
  // Reads and drops what the server still writes to a stream that this side has closed.
  static Task<void> drain(std::shared_ptr<detail::StreamCore> core);

  Loop& loop_;
  const std::string address_;
  const ChannelOptions options_;
  std::map<CompressType, Shared> single_;  // By compression, which is an option of a connection.
  std::map<CompressType, std::vector<Shared>> idle_;
  Scope scope_;
};

}  // namespace hawser::pb
