#pragma once

#include <hawser/brpc.h>
#include <hawser/protobuf_channel.h>
#include <hawser/protobuf_generic.h>
#include <hawser/protobuf_stream.h>
#include <hawser/server.h>

#include <cerrno>
#include <cstdio>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "echo.pb.h"

// The service of the programs of this folder, as a program of bRPC has it.
class EchoServiceImpl : public example::EchoService {
 public:
  void Echo(google::protobuf::RpcController* base, const example::EchoRequest* request, example::EchoResponse* response,
            google::protobuf::Closure* done) override {
    hawser::pb::ClosureGuard done_guard(done);
    auto* const controller = static_cast<hawser::pb::Controller*>(base);
    if (request->message() == "wait until cancelled") {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(done_guard.release());
      return;
    }
    // The stream of a caller that has created one.
    hawser::pb::StreamOptions options;
    options.handler = &echo_messages_;
    hawser::pb::StreamId stream = hawser::pb::INVALID_STREAM_ID;
    static_cast<void>(hawser::pb::StreamAccept(&stream, *controller, &options));
    response->set_message(request->message());
    controller->response_attachment().append(controller->request_attachment());
  }
  // Ends the calls that wait.
  void finish() {
    std::vector<google::protobuf::Closure*> waiting;
    {
      const std::lock_guard lock(mutex_);
      waiting.swap(waiting_);
    }
    for (auto* const done : waiting) done->Run();
  }

 private:
  // Sends the messages of a stream back.
  class EchoMessages : public hawser::pb::StreamInputHandler {
   public:
    int on_received_messages(hawser::pb::StreamId id, hawser::pb::IOBuf* const messages[], std::size_t size) override {
      for (std::size_t i = 0; i < size; ++i) {
        while (hawser::pb::StreamWrite(id, *messages[i]) == EAGAIN) hawser::pb::StreamWait(id, nullptr);
      }
      return 0;
    }
    void on_idle_timeout(hawser::pb::StreamId) override {}
    void on_closed(hawser::pb::StreamId) override {}
  };

  EchoMessages echo_messages_;
  std::mutex mutex_;
  std::vector<google::protobuf::Closure*> waiting_;
};

// A server of it on a free port.
class EchoServer {
 public:
  EchoServer() {
    server_.enable(hawser::baidu_std());
    hawser::pb::add_service(server_, &service_);
    if (auto started = server_.start(); !started) std::puts(started.error().describe().c_str());
  }
  ~EchoServer() {
    service_.finish();
    server_.stop(std::chrono::seconds(1));
  }
  std::string address() const { return server_.address(); }

 private:
  EchoServiceImpl service_;
  hawser::Server server_;
};

inline hawser::pb::ChannelOptions patient_options() {
  hawser::pb::ChannelOptions options;
  options.timeout_ms = 30'000;
  options.connect_timeout_ms = 30'000;
  return options;
}
