#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "hawser/brpc.h"
#include "hawser/hawser.h"
#include "hawser/protobuf_channel.h"
#include "hawser/protobuf_generic.h"
#include "protobuf/test/generic.pb.h"
#include "tests/testing.h"

namespace hawser::pb {

using namespace testing_tools;

class PostOffice final : public probe::PostService {
 public:
  void Deliver(google::protobuf::RpcController* base, const probe::Parcel* request, probe::Receipt* response,
               google::protobuf::Closure* done) override {
    const ClosureGuard guard(done);
    auto* const controller = static_cast<Controller*>(base);
    if (request->text() == "fail") return controller->SetFailed(17, "no such street");
    if (request->text() == "fail without a code") return controller->SetFailed("no such house");
    response->set_text(request->text() + " " + std::to_string(controller->log_id()));
    controller->response_attachment().append(controller->request_attachment());
  }
  // Keeps the call until release(), unless `open`.
  void Hold(google::protobuf::RpcController* controller, const probe::Parcel* request, probe::Receipt* response,
            google::protobuf::Closure* done) override {
    response->set_text(request->text());
    controller->NotifyOnCancel(NewCallback(this, &PostOffice::on_cancel));
    {
      const std::lock_guard lock(mutex_);
      ++holding;
      if (!open) {
        held_.push_back(done);
        return;
      }
    }
    done->Run();
  }
  void release() {
    std::vector<google::protobuf::Closure*> held;
    {
      const std::lock_guard lock(mutex_);
      held.swap(held_);
    }
    for (auto* const done : held) done->Run();
  }
  std::atomic<int> holding{0};
  std::atomic<int> cancelled{0};
  std::atomic<bool> open{false};

 private:
  void on_cancel() { ++cancelled; }
  std::mutex mutex_;
  std::vector<google::protobuf::Closure*> held_;
};

// A `done` that runs a function.
class Then final : public google::protobuf::Closure {
 public:
  explicit Then(std::function<void()> work) : work_(std::move(work)) {}
  void Run() override {
    const std::unique_ptr<Then> self(this);
    work_();
  }

 private:
  const std::function<void()> work_;
};

class PbChannel : public ::testing::TestWithParam<const char*> {
 protected:
  PbChannel() {
    server.enable(baidu_std());
    add_service(server, &office);
    if (auto started = server.start(); !started) ADD_FAILURE() << started.error().describe();
    address = server.address();
    options.protocol = GetParam();
    options.timeout_ms =
        std::chrono::milliseconds(std::chrono::duration_cast<std::chrono::milliseconds>(patience)).count();
    options.connect_timeout_ms = static_cast<std::int32_t>(options.timeout_ms);
  }
  ~PbChannel() override {
    office.open = true;  // For requests that arrive after release().
    office.release();
    server.stop(Duration(0));
  }
  std::unique_ptr<Channel> channel() {
    auto made = std::make_unique<Channel>();
    EXPECT_EQ(made->Init(address, &options), 0) << made->error_text();
    return made;
  }
  static probe::Parcel parcel(const std::string& text) {
    probe::Parcel parcel;
    parcel.set_text(text);
    return parcel;
  }

  PostOffice office;
  Server server;
  std::string address;
  ChannelOptions options;
};

}  // namespace hawser::pb
