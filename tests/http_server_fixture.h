#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "tests/at_rest.h"
#include "tests/background_client.h"
#include "tests/http_routes.h"
#include "tests/repeat_handler.h"

namespace hawser::http_test {

// A server with the methods and routes of http_routes.h. A native client calls it all the time.
class ServerFixture : public ::testing::Test {
 protected:
  ServerFixture() {
    waiting = 0;
    cancelled = 0;
    released = false;
    options.loop.log = no_log();
    options.message_bytes_max = 1 << 20;
  }
  ~ServerFixture() override {
    if (!native) return;
    EXPECT_TRUE(native->sees_calls(5));
    EXPECT_EQ(native->complaint(), "");
    native->stop();
  }

  template <auto F>
  void add(std::string name) {
    using Facts = detail::MethodFacts<F>;
    server->add_method({.id = Facts::id,
                        .signature = Facts::signature,
                        .name = std::move(name),
                        .handler = std::make_unique<detail::FunctionHandler<F, void>>(nullptr, HandlerOptions{}),
                        .json = std::make_shared<TextTranscoder>()});
  }
  // Makes the server, unless a test has made it, and registers the methods.
  void make_server() {
    if (server == nullptr) server = std::make_unique<Server>(options);
    server->register_handler<testing_tools::echo>();
    add<say>("test.Text/Say");
    add<say_later>("test.Text/Later");
    add<wait_for_ever>("test.Text/Wait");
    server->add_method({.id = 1,
                        .name = "test.Bytes/Repeat",
                        .handler = std::make_unique<Repeat>(),
                        .json = std::make_shared<BytesTranscoder>()});
    server->add_method({.id = 2,
                        .name = "test.Bytes/Stream",
                        .handler = std::make_unique<Repeat>(),
                        .streams_out = true,
                        .json = std::make_shared<BytesTranscoder>()});
  }
  // Adds the routes that all tests of HTTP use.
  static Http add_routes(Http protocol) {
    return std::move(protocol)
        .route("GET", "/hello", hello)
        .route("POST", "/hello", hello)
        .route("GET", "/v1/users/{id}", parameters)
        .route("GET", "/wait", wait_in_route)
        .route("GET", "/held", wait_for_release)
        .route("GET", "/broken", broken)
        .route("GET", "/large", large)
        .route("GET", "/streamed", streamed)
        .route("GET", "/endless", endless)
        .route("GET", "/cut", cut_short)
        .route("GET", "/empty", empty);
  }
  void start_server() {
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
    native = std::make_unique<BackgroundClient>(server->address());
  }
  // Ends the native client: its calls count as the others do.
  void without_native() {
    native.reset();
    EXPECT_TRUE(soon([&] { return at_rest(*server); }));
  }
  bool only_native_left() {
    return soon([&] { return at_rest(*server, 1); });
  }

  ServerOptions options;
  std::unique_ptr<Server> server;
  std::unique_ptr<BackgroundClient> native;
};

}  // namespace hawser::http_test
