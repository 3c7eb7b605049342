// Services of google::protobuf::Service.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "hawser/hawser.h"
#include "hawser/protobuf.h"
#include "hawser/protobuf_generic.h"
#include "protobuf/test/generic.pb.h"
#include "tests/testing.h"

namespace hawser::pb {

// The methods, as clients of the library call them.
struct Post {
  Task<Result<probe::Receipt>> Deliver(const probe::Parcel&);
  Task<Result<probe::Receipt>> Hold(const probe::Parcel&);
};

}  // namespace hawser::pb

template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::pb::Post::Deliver> =
    "probe.PostService/Deliver";
template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::pb::Post::Hold> = "probe.PostService/Hold";

namespace hawser::pb {
namespace {

using namespace testing_tools;

class PostOffice final : public probe::PostService {
 public:
  ~PostOffice() override {
    for (std::thread& thread : threads_) thread.join();
  }

  void Deliver(google::protobuf::RpcController* base, const probe::Parcel* request, probe::Receipt* response,
               google::protobuf::Closure* done) override {
    auto& controller = *static_cast<Controller*>(base);
    const std::string text = request->text();
    if (text == "fail") {
      controller.SetFailed(17, "no such street");
    } else if (text != "empty") {
      response->set_text(text + " for " + std::string(as_text(controller.request_attachment())));
      controller.set_response_attachment(Buffer::copy_of(controller.request_attachment()));
    }
    if (text != "later") return done->Run();
    const std::lock_guard lock(mutex_);
    threads_.emplace_back([done] { done->Run(); });
  }
  // Keeps the call until release().
  void Hold(google::protobuf::RpcController* controller, const probe::Parcel* request, probe::Receipt* response,
            google::protobuf::Closure* done) override {
    response->set_text(request->text());
    controller->NotifyOnCancel(google::protobuf::NewCallback(this, &PostOffice::on_cancel));
    const std::lock_guard lock(mutex_);
    held_ = done;
    ++holding;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    std::exchange(held_, nullptr)->Run();
  }
  std::atomic<int> holding{0};
  std::atomic<int> cancelled{0};

 private:
  void on_cancel() { ++cancelled; }
  std::mutex mutex_;
  std::vector<std::thread> threads_;
  google::protobuf::Closure* held_ = nullptr;
};

class GenericServices : public ::testing::TestWithParam<bool> {
 protected:
  template <class Body>
  void serve(Body body) {
    server = std::make_unique<Server>();
    add_service(*server, &office, {.offload = GetParam()});
    ASSERT_TRUE(server->start());
    auto work = [&]() -> Task<void> {
      Client client({.call_timeout = patience});
      auto connected = co_await client.connect(server->address());
      REQUIRE_OK(connected);
      co_await body(client);
    };
    sync_wait(work());
  }
  static probe::Parcel parcel(const std::string& text) {
    probe::Parcel parcel;
    parcel.set_text(text);
    return parcel;
  }
  PostOffice office;
  std::unique_ptr<Server> server;
};

INSTANTIATE_TEST_SUITE_P(Threads, GenericServices, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "offloaded" : "on_the_loop"; });

TEST_P(GenericServices, AnswerAtOnceAndLater) {
  serve([&](Client& client) -> Task<void> {
    for (const std::string text : {"at once", "later"}) {
      const probe::Parcel request = parcel(text);
      const CallOptions options{.attachment = as_bytes(std::string_view("Ada"))};
      auto reply = co_await client.call<&Post::Deliver>(options, request).reply();
      REQUIRE_OK(reply);
      EXPECT_EQ((*reply)->text(), text + " for Ada");
      EXPECT_EQ(as_text(reply->attachment()), "Ada");
    }
  });
}

TEST_P(GenericServices, FailWithACodeAndAText) {
  serve([&](Client& client) -> Task<void> {
    const probe::Parcel request = parcel("fail");
    auto reply = co_await client.call<&Post::Deliver>(request);
    EXPECT_ERROR(reply, application, "no such street");
    EXPECT_EQ(reply.error().application_code, 17);
    const probe::Parcel empty = parcel("empty");
    auto incomplete = co_await client.call<&Post::Deliver>(empty);
    EXPECT_ERROR(incomplete, invalid_argument, "a required field of the response is not set");
  });
}

TEST_P(GenericServices, AreNotifiedOfCancellationOnce) {
  serve([&](Client& client) -> Task<void> {
    const probe::Parcel request = parcel("x");
    const CallOptions options{.timeout = std::chrono::milliseconds(20)};
    auto late = co_await client.call<&Post::Hold>(options, request);
    EXPECT_ERROR(late, deadline_exceeded, "");
    Loop& loop = *Loop::current();
    auto noticed = co_await eventually(loop, [&] { return office.holding == 0 || office.cancelled == 1; });
    EXPECT_TRUE(noticed);
    if (office.holding == 0) co_return;  // The call was cancelled before it reached the service.
    office.release();
    EXPECT_EQ(office.cancelled, 1);
    // A call that ends by itself notifies as well.
    auto pending = co_await client.send_request<&Post::Hold>(request);
    REQUIRE_OK(pending);
    auto held = co_await eventually(loop, [&] { return office.holding == 2; });
    REQUIRE(held);
    office.release();
    auto reply = co_await std::move(*pending);
    REQUIRE_OK(reply);
    EXPECT_EQ(reply->text(), "x");
    EXPECT_EQ(office.cancelled, 2);
  });
}

TEST_P(GenericServices, MayAnswerAfterTheServerHasEnded) {
  serve([&](Client& client) -> Task<void> {
    const probe::Parcel request = parcel("x");
    auto pending = co_await client.send_request<&Post::Hold>(request);
    REQUIRE_OK(pending);
    Loop& loop = *Loop::current();
    auto held = co_await eventually(loop, [&] { return office.holding == 1; });
    REQUIRE(held);
  });
  server->stop(std::chrono::milliseconds(0));
  server.reset();
  office.release();
}

}  // namespace
}  // namespace hawser::pb
