#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <climits>
#include <cstdint>
#include <exception>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "hawser/protobuf_channel.h"
#include "protobuf/channel/shared_sites.h"
#include "protobuf/channel/site.h"

namespace hawser::pb {

struct Channel::State {
  std::shared_ptr<const MethodInfo> method(const google::protobuf::MethodDescriptor& of,
                                           const google::protobuf::Message& response) {
    const std::lock_guard lock(mutex);
    std::shared_ptr<const MethodInfo>& known = methods[&of];
    if (known == nullptr) {
      known = std::make_shared<const MethodInfo>(std::string(of.service()->full_name()).append("/").append(of.name()),
                                                 MessageFacts(response));
    }
    return known;
  }

  std::string address;
  // Defaults of the channel's calls.
  std::int64_t timeout_ms = 0;
  int max_retry = 0;
  std::int64_t backup_request_ms = 0;
  std::shared_ptr<BackgroundLoops> loops;
  std::shared_ptr<ChannelSite> site;
  std::mutex mutex;
  std::unordered_map<const google::protobuf::MethodDescriptor*, std::shared_ptr<const MethodInfo>> methods;
};

Channel::Channel() = default;
Channel::~Channel() = default;

int Channel::Init(const std::string& address, const ChannelOptions* given) {
  const auto refuse = [this](std::string text) {
    error_text_ = std::move(text);
    return -1;
  };
  const ChannelOptions options = given != nullptr ? *given : ChannelOptions();
  if (state_ != nullptr) return refuse("Init() was called before: make another channel");
  if (address.empty()) return refuse("the address is empty: give host:port or unix:/path");
  if (options.protocol != "baidu_std" && options.protocol != "hawser") {
    return refuse("protocol is '" + options.protocol + "': it must be baidu_std or hawser");
  }
  if (options.connection_type != "single" && options.connection_type != "pooled" &&
      options.connection_type != "short") {
    return refuse("connection_type is '" + options.connection_type + "': it must be single, pooled or short");
  }
  auto state = std::make_shared<State>();
  state->address = address;
  state->timeout_ms = options.timeout_ms;
  state->max_retry = options.max_retry;
  state->backup_request_ms = options.backup_request_ms;
  try {
    state->loops = options.loops ? options.loops : default_loops();
  } catch (const std::exception& error) {
    return refuse(std::string("a background loop cannot be started: ") + error.what());
  }
  state->site = shared_site(state->loops, address, options);
  state_ = std::move(state);
  return 0;
}

int Channel::Init(const std::string& address, const std::string& balancer, const ChannelOptions* options) {
  if (balancer.empty()) return Init(address, options);
  error_text_ = "load balancer '" + balancer + "': a channel has one server, so the name must be empty";
  return -1;
}

int Channel::Init(const char* host, int port, const ChannelOptions* options) {
  return Init(std::string(host) + ":" + std::to_string(port), options);
}

void Channel::CallMethod(const google::protobuf::MethodDescriptor* method, google::protobuf::RpcController* base,
                         const google::protobuf::Message* request, google::protobuf::Message* response,
                         google::protobuf::Closure* done) {
  const std::shared_ptr<ClientCall> call = ClientCall::start(base, response, done);
  if (call == nullptr) return;
  auto* const controller = static_cast<Controller*>(base);
  const std::shared_ptr<State> state = state_;  // The call may destroy the channel.
  std::vector<OwnedStream> streams = OwnedStream::all_of(controller->take_streams());
  const auto refuse = [&](std::string text) {
    call->refuse(Error::of_call(hawser::ErrorCode::invalid_argument, std::move(text)));
  };
  if (state == nullptr) return refuse("this channel has no server: call Init() first, and look at its result");
  controller->peer_ = state->address;
  if (call->refuse_to_block(done)) return;
  if (!state->loops->in_this_process()) {
    return refuse(
        "this channel was made by the parent of this process, whose loops do not run here after fork(): make another "
        "one");
  }
  if (!request->IsInitialized()) {
    return refuse("required fields of the request are missing: " + request->InitializationErrorString());
  }
  if (!streams.empty() && state->site->options().protocol != "baidu_std") {
    return refuse("the protocol of this channel is '" + state->site->options().protocol +
                  "': a stream of StreamCreate() needs baidu_std");
  }
  const std::size_t bytes = request->ByteSizeLong();
  if (bytes > INT_MAX) return refuse("the request takes " + std::to_string(bytes) + " bytes: it may have 2 GiB");

  auto work = std::make_unique<Work>();
  work->site = state->site;
  work->method = state->method(*method, *response);
  if (bytes != 0) {
    work->request = Buffer::allocate(bytes);
    static_cast<void>(
        request->SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(work->request.mutable_data())));
  }
  if (!controller->request_attachment_.empty()) {
    work->attachment = Buffer::copy_of(controller->request_attachment_.bytes());
  }
  work->metadata = controller->request_metadata_;
  work->compression = controller->compress_type_;
  const std::int64_t timeout_ms = controller->timeout_ms_.value_or(state->timeout_ms);
  work->timeout = timeout_ms < 0 ? forever : std::chrono::milliseconds(timeout_ms);
  work->max_retry = controller->max_retry_.value_or(state->max_retry);
  const std::int64_t backup_ms = controller->backup_request_ms_.value_or(state->backup_request_ms);
  if (backup_ms >= 0 && streams.empty()) work->backup_after = std::chrono::milliseconds(backup_ms);
  work->streams = std::move(streams);
  call->run_on(state->loops, state->site->loop());
  work->call = call;
  state->site->loop().post([ready = std::move(work)]() mutable {
    ChannelSite& site = *ready->site;
    site.begin(std::move(ready));
  });
  if (done == nullptr) call->wait();
}

}  // namespace hawser::pb
