#pragma once

#include <gmock/gmock.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/http_client.h"
#include "hawser/pages.h"
#include "tests/testing.h"

namespace hawser::profile_test {

// Asks a server with pages for `path`. `field` is the name of a header field to send, `accept` the Accept field.
struct Question {
  std::string path;
  std::string field = {};
  std::string accept = {};
};
HttpClientResponse get(const Question& question, const PagesOptions& options = {});

// A profile in the format of pprof, decoded. Each reference to a missing string, function or location is a failure of
// the test.
struct DecodedProfile {
  struct Sample {
    std::vector<std::string> frames;  // The innermost first.
    std::vector<std::int64_t> values;
    std::map<std::string, std::string> labels;
  };
  std::vector<std::string> types;  // "type/unit"
  std::vector<Sample> samples;
  std::string period_type;
  std::int64_t period = 0;
  std::int64_t duration_ns = 0;
  std::string default_type;
  std::vector<std::string> comments;

  std::int64_t total(std::size_t type) const;
};
DecodedProfile decode_pprof(std::string_view bytes);

// The lines of a folded profile that contain `name`, and the sum of their values.
struct Folded {
  std::size_t lines = 0;
  std::uint64_t value = 0;
};
Folded folded_of(std::string_view text, std::string_view name);

}  // namespace hawser::profile_test

// A compiler that makes a jump of the last call would take the function out of the stack.
#define STAY_IN_STACK() asm volatile("" ::: "memory")
