#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/loop.h"
#include "protocol/http/kept_head.h"
#include "protocol/http/request_plan.h"
#include "rpc/port/http_streams.h"

namespace hawser::protocol::http {

// The head of a request on a stream of HTTP/2 (RFC 9113, 8.3). `head` outlives this object, with the memory to which
// its views refer.
class StreamRequest {
 public:
  explicit StreamRequest(const rpc::HttpStreamHead& head) noexcept : head_(head) {}

  struct Refusal {
    unsigned status = 0;  // The status of the response. 0: the head is right.
    std::string text;
  };
  // Checks the head, and adds each field to `fields`. Call it before all others but brief().
  Refusal read(std::size_t fields_max, CallFields& fields, const Loop& loop);

  bool expects() const noexcept { return expects_; }
  std::uint64_t content_length() const noexcept { return length_.value_or(0); }
  // The part on which the plan depends: the method, the target and the fields about the form of the body.
  RequestHead brief() const;
  // A copy of the whole head, for a handler. `gunzip`: without the fields that describe the body as it was sent.
  KeptHead keep(bool gunzip) const;

 private:
  // True if the field is right. Otherwise `why` is set.
  bool read_field(const rpc::HttpField& field, Refusal& why);
  void set_target(RequestHead& head, std::string_view target) const;

  const rpc::HttpStreamHead& head_;
  std::size_t bytes_ = 0;                 // Memory that a copy needs.
  std::optional<std::string_view> host_;  // The field host.
  std::optional<std::uint64_t> length_;   // The field content-length.
  bool expects_ = false;                  // The client waits for 100 Continue.
};

}  // namespace hawser::protocol::http
