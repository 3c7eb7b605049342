#pragma once

#include <stop_token>

namespace hawser {

// Combines two stop tokens for waits that accept one. token() is stopped as soon as one of the two is:
//   const AnyStop stop(context.token(), context.stopping());
//   auto item = co_await channel.receive(stop.token());
// The stop is requested on the thread that stops the other token.
class AnyStop {
 public:
  AnyStop(const std::stop_token& one, const std::stop_token& other)
      : on_one_(one, Request{source_}), on_other_(other, Request{source_}) {}
  AnyStop(const AnyStop&) = delete;
  AnyStop& operator=(const AnyStop&) = delete;

  std::stop_token token() const noexcept { return source_.get_token(); }

 private:
  struct Request {
    std::stop_source& source;
    // Uses a copy, because a stop callback may destroy this object.
    void operator()() const noexcept { std::stop_source(source).request_stop(); }
  };
  std::stop_source source_;
  std::stop_callback<Request> on_one_;
  std::stop_callback<Request> on_other_;
};

}  // namespace hawser
