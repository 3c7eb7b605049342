#include "tests/profile/profile_testing.h"

#include <charconv>
#include <optional>

namespace hawser::profile_test {
namespace {

using namespace testing_tools;

// The fields of a message of Protocol Buffers, of the two kinds that profile.proto uses.
struct Field {
  std::uint64_t number = 0;
  std::uint64_t value = 0;
  std::string_view bytes = {};
};

std::vector<Field> fields_of(std::string_view in) {
  std::vector<Field> fields;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (unsigned shift = 0; !in.empty() && shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(in.front());
      in.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if ((byte & 0x80U) == 0) return value;
    }
    ADD_FAILURE() << "a number has no end";
    return value;
  };
  while (!in.empty()) {
    const std::uint64_t key = varint();
    Field field{.number = key >> 3};
    field.value = varint();
    if ((key & 7U) == 2) {
      if (field.value > in.size()) {
        ADD_FAILURE() << "field " << field.number << " has " << field.value << " bytes of " << in.size();
        break;
      }
      field.bytes = in.substr(0, field.value);
      in.remove_prefix(field.value);
    } else if ((key & 7U) != 0) {
      ADD_FAILURE() << "field " << field.number << " has the wire type " << (key & 7U);
      break;
    }
    fields.push_back(field);
  }
  return fields;
}

std::uint64_t number_in(std::string_view message, std::uint64_t field) {
  std::uint64_t value = 0;
  for (const Field& one : fields_of(message)) {
    if (one.number == field) value = one.value;
  }
  return value;
}

}  // namespace

HttpClientResponse get(const Question& question, const PagesOptions& options) {
  Server server;
  PagesOptions pages = options;
  pages.pages = pages.changes = PageAccess::all;
  enable_pages(server, std::move(pages));
  EXPECT_OK(server.start());
  return sync_wait([](std::string url, std::string field, std::string accept) -> Task<HttpClientResponse> {
    HttpClientOptions client;
    client.request_timeout = patience;
    HttpClient http(*Loop::current(), client);
    HttpClientRequest request;
    request.url = std::move(url);
    if (!field.empty()) request.headers.emplace_back(field, "http://other.example");
    if (!accept.empty()) request.headers.emplace_back("Accept", accept);
    auto response = co_await http.send(std::move(request));
    EXPECT_OK(response);
    co_return response ? std::move(*response) : HttpClientResponse();
  }("http://" + server.address() + question.path, question.field, question.accept));
}

std::int64_t DecodedProfile::total(std::size_t type) const {
  std::int64_t sum = 0;
  for (const Sample& sample : samples) sum += sample.values.at(type);
  return sum;
}

DecodedProfile decode_pprof(std::string_view bytes) {
  const std::vector<Field> fields = fields_of(bytes);
  std::vector<std::string> strings;
  for (const Field& field : fields) {
    if (field.number == 6) strings.emplace_back(field.bytes);
  }
  EXPECT_FALSE(strings.empty());
  EXPECT_TRUE(strings.empty() || strings.front().empty());
  const auto text = [&](std::uint64_t index) {
    EXPECT_LT(index, strings.size());
    return index < strings.size() ? strings[index] : std::string();
  };
  const auto kind = [&](std::string_view message) {
    return text(number_in(message, 1)) + "/" + text(number_in(message, 2));
  };
  std::map<std::uint64_t, std::string> functions;
  for (const Field& field : fields) {
    if (field.number == 5) functions[number_in(field.bytes, 1)] = text(number_in(field.bytes, 2));
  }
  std::map<std::uint64_t, std::string> locations;
  for (const Field& field : fields) {
    if (field.number != 4) continue;
    for (const Field& one : fields_of(field.bytes)) {
      if (one.number != 4) continue;
      const std::uint64_t function = number_in(one.bytes, 1);
      EXPECT_TRUE(functions.contains(function)) << function;
      locations[number_in(field.bytes, 1)] = functions[function];
    }
  }
  EXPECT_FALSE(locations.contains(0));
  DecodedProfile profile;
  for (const Field& field : fields) {
    switch (field.number) {
      case 1: profile.types.push_back(kind(field.bytes)); break;
      case 9: EXPECT_GT(field.value, 1'700'000'000'000'000'000U); break;
      case 10: profile.duration_ns = static_cast<std::int64_t>(field.value); break;
      case 11: profile.period_type = kind(field.bytes); break;
      case 12: profile.period = static_cast<std::int64_t>(field.value); break;
      case 13: profile.comments.push_back(text(field.value)); break;
      case 14: profile.default_type = text(field.value); break;
      default: break;
    }
    if (field.number != 2) continue;
    DecodedProfile::Sample sample;
    for (const Field& one : fields_of(field.bytes)) {
      if (one.number == 1) {
        EXPECT_TRUE(locations.contains(one.value)) << one.value;
        sample.frames.push_back(locations[one.value]);
      } else if (one.number == 2) {
        sample.values.push_back(static_cast<std::int64_t>(one.value));
      } else if (one.number == 3) {
        sample.labels[text(number_in(one.bytes, 1))] = text(number_in(one.bytes, 2));
      }
    }
    profile.samples.push_back(std::move(sample));
  }
  for (const DecodedProfile::Sample& sample : profile.samples) EXPECT_EQ(sample.values.size(), profile.types.size());
  return profile;
}

Folded folded_of(std::string_view text, std::string_view name) {
  Folded found;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find(name) == std::string_view::npos) continue;
    ++found.lines;
    std::uint64_t value = 0;
    const std::string_view digits = line.substr(line.rfind(' ') + 1);
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    found.value += value;
  }
  return found;
}

}  // namespace hawser::profile_test
