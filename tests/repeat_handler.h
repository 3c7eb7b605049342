#pragma once

#include <cstring>

#include "hawser/detail/reply_sink.h"

namespace hawser::testing_tools {

// Answers a call with the bytes of its request, for protocols whose bodies are bytes.
class Repeat final : public detail::Handler {
 public:
  void serve(const detail::IncomingRequest& request) override {
    codec::EncodedSize size;
    size.body = request.body.size();
    std::byte* const body = request.sink.begin_reply(request.call, size, {});
    if (body == nullptr) return;
    std::memcpy(body, request.body.data(), request.body.size());
    request.sink.end_reply({}, nullptr);
  }
};

}  // namespace hawser::testing_tools
