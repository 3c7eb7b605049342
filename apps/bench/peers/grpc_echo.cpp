#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/load/echo.grpc.pb.h"
#include "bench/peers/peer.h"

// gRPC with its callback interface, which its documentation calls the fastest. Blocking callers use its synchronous
// stub.
namespace hawser::bench {
namespace {

using Stub = ::bench::Echo::Stub;

constexpr std::chrono::seconds connect_max(10);

class GrpcEchoService final : public ::bench::Echo::CallbackService {
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context, const ::bench::Payload* request,
                                 ::bench::Payload* reply) override {
    // The request is about to be destroyed, so its bytes are swapped instead of copied.
    reply->mutable_data()->swap(*const_cast<::bench::Payload*>(request)->mutable_data());
    return done(context);
  }
  grpc::ServerUnaryReactor* Acknowledge(grpc::CallbackServerContext* context, const ::bench::Payload* request,
                                        ::bench::Ack* reply) override {
    const PeerAck ack = peer_ack_of(request->data());
    reply->set_bytes(ack.bytes);
    reply->set_head(ack.head);
    return done(context);
  }
  static grpc::ServerUnaryReactor* done(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

// Number of callers that have not stopped. Their calls end on threads of gRPC.
class Going {
 public:
  explicit Going(unsigned callers) : count_(callers) {}
  void one_less() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--count_ == 0) none_left_.notify_one();
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    none_left_.wait(lock, [&] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_left_;
  unsigned count_;
};

// Makes one call after the other.
class GrpcPeerCaller {
 public:
  GrpcPeerCaller(Stub& stub, PeerLoad& load, std::size_t number, Going& going)
      : stub_(stub), load_(load), number_(number), going_(going) {
    request_.set_data(std::string(load.payload(number)));
  }

  void call() {
    context_.emplace();
    load_.begin(number_);
    const auto then = [this](const grpc::Status& status) { end(status); };
    if (load_.ack()) {
      stub_.async()->Acknowledge(&*context_, &request_, &ack_, then);
    } else {
      stub_.async()->Call(&*context_, &request_, &reply_, then);
    }
  }

 private:
  void end(const grpc::Status& status) {
    bool more = false;
    if (!status.ok()) {
      load_.fail("status " + std::to_string(status.error_code()) + ": " + status.error_message());
    } else {
      more = load_.ack() ? load_.end(number_, ack_.bytes(), ack_.head()) : load_.end(number_, reply_.data());
    }
    more ? call() : going_.one_less();
  }

  Stub& stub_;
  PeerLoad& load_;
  const std::size_t number_;
  Going& going_;
  std::optional<grpc::ClientContext> context_;  // Each call needs a new context.
  ::bench::Payload request_;
  ::bench::Payload reply_;
  ::bench::Ack ack_;
};

// Makes one call after the other and blocks meanwhile.
void call_in_turn(Stub& stub, PeerLoad& load, std::size_t number) {
  ::bench::Payload request;
  request.set_data(std::string(load.payload(number)));
  for (bool more = true; more;) {
    grpc::ClientContext context;
    ::bench::Payload reply;
    ::bench::Ack ack;
    load.begin(number);
    const grpc::Status status =
        load.ack() ? stub.Acknowledge(&context, request, &ack) : stub.Call(&context, request, &reply);
    if (!status.ok()) {
      load.fail("status " + std::to_string(status.error_code()) + ": " + status.error_message());
      return;
    }
    more = load.ack() ? load.end(number, ack.bytes(), ack.head()) : load.end(number, reply.data());
  }
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.empty()) throw std::runtime_error("cannot read " + path);
  return text;
}

std::shared_ptr<grpc::ServerCredentials> server_credentials(const PeerTls& tls) {
  if (tls.certificate.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({text_of(tls.key), text_of(tls.certificate)});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const PeerTls& tls) {
  if (tls.ca.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = text_of(tls.ca);
  return grpc::SslCredentials(options);
}

std::shared_ptr<grpc::Channel> channel_to(const PeerTls& tls, const PeerLoad& load) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // Otherwise channels share a connection.
  return grpc::CreateCustomChannel(load.address(), channel_credentials(tls), arguments);
}

}  // namespace

std::string_view peer_name() noexcept { return "grpc"; }

void serve_peer(const PeerTls& tls, const std::function<void(const std::string& address)>& listening) {
  GrpcEchoService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", server_credentials(tls), &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) throw std::runtime_error("the server does not start");
  listening("127.0.0.1:" + std::to_string(port));
  server->Wait();
}

void call_peer(const PeerTls& tls, PeerLoad& load) {
  std::vector<std::unique_ptr<Stub>> stubs;
  for (unsigned i = 0; i < load.connections(); ++i) {
    const std::shared_ptr<grpc::Channel> channel = channel_to(tls, load);
    if (!channel->WaitForConnected(std::chrono::system_clock::now() + connect_max)) {
      throw std::runtime_error("cannot connect to " + load.address());
    }
    stubs.push_back(::bench::Echo::NewStub(channel));
  }
  if (load.blocking()) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < load.callers(); ++i) {
      threads.emplace_back([&, i] { call_in_turn(*stubs[i % stubs.size()], load, i); });
    }
    for (std::thread& thread : threads) thread.join();
    return;
  }
  Going going(load.callers());
  std::vector<std::unique_ptr<GrpcPeerCaller>> callers;
  for (unsigned i = 0; i < load.callers(); ++i) {
    callers.push_back(std::make_unique<GrpcPeerCaller>(*stubs[i % stubs.size()], load, i, going));
  }
  for (const std::unique_ptr<GrpcPeerCaller>& caller : callers) caller->call();
  going.wait();
}

}  // namespace hawser::bench
