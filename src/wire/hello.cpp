#include "wire/hello.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/byte_fields.h"
#include "base/decimal_text.h"
#include "base/try.h"

namespace hawser::wire {
namespace {

constexpr std::string_view magic = "HWSR";

enum Tag : std::uint16_t {
  tag_features = 1,
  tag_message_bytes_max = 2,
  tag_calls_max = 3,
  tag_stream_window_bytes = 4,
  tag_refusal = 5,
  tag_offer = 6,
  tag_selection = 7,
  tag_declined = 8,
  tag_answer = 9,
  tag_unanswered = 10,
  tag_ready = 11,
  tag_protection = 12,
};
constexpr std::uint32_t feature_checksum = 1;
constexpr std::uint32_t feature_memory = 2;

std::unexpected<Error> hello_error(std::string text, const char* of = "") {
  return fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                   std::string("invalid ") + of + "HELLO: " + std::move(text)));
}

void put_number(ByteWriter& out, Tag tag, std::uint32_t value) {
  out.number(static_cast<std::uint16_t>(tag)).number(static_cast<std::uint16_t>(sizeof value)).number(value);
}

void put_bytes(ByteWriter& out, Tag tag, Bytes bytes) {
  out.number(static_cast<std::uint16_t>(tag)).number(static_cast<std::uint16_t>(bytes.size())).bytes(bytes);
}

// Writes the code as u16, then the text.
void put_refusal(ByteWriter& out, const Error& refusal) {
  const std::string_view text = std::string_view(refusal.text).substr(0, refusal_text_bytes_max);
  ByteWriter value;
  value.number(static_cast<std::uint16_t>(refusal.code)).bytes(as_bytes(text));
  put_bytes(out, tag_refusal, value.written());
}

// Writes the length of the name as u8, the name, then the bytes.
void put_named(ByteWriter& out, Tag tag, const NamedBytes& named, std::size_t bytes_max) {
  const Bytes name = as_bytes(std::string_view(named.name).substr(0, transport_name_bytes_max));
  ByteWriter value;
  value.number(static_cast<std::uint8_t>(name.size()))
      .bytes(name)
      .bytes(Bytes(named.bytes).first(std::min(named.bytes.size(), bytes_max)));
  put_bytes(out, tag, value.written());
}

bool read_number(Bytes value, std::uint32_t& out) noexcept {
  ByteReader reader(value);
  out = reader.number<std::uint32_t>();
  return reader.finished();
}

bool read_refusal(Bytes value, std::optional<Error>& out) {
  ByteReader reader(value);
  const ErrorCode code = decode_error_code(reader.number<std::uint16_t>());
  out = Error::of_connection(Initiator::peer, code, std::string(as_text(reader.rest())));
  return reader.complete();
}

bool read_named(Bytes value, std::size_t bytes_max, NamedBytes& out) {
  ByteReader reader(value);
  const auto length = reader.number<std::uint8_t>();
  const std::string_view name = as_text(reader.bytes(length));
  const Bytes bytes = reader.rest();
  if (!reader.complete() || length == 0 || length > transport_name_bytes_max || bytes.size() > bytes_max) return false;
  out = {std::string(name), {bytes.begin(), bytes.end()}};
  return true;
}

bool read_one_of(Bytes value, std::size_t bytes_max, std::vector<NamedBytes>& out) {
  NamedBytes one;
  if (out.size() == transports_max || !read_named(value, bytes_max, one)) return false;
  out.push_back(std::move(one));
  return true;
}

bool read_field(Hello& hello, std::uint16_t tag, Bytes value) {
  switch (tag) {
    case tag_features: {
      std::uint32_t features = 0;
      if (!read_number(value, features)) return false;
      hello.checksum = (features & feature_checksum) != 0;
      hello.memory = (features & feature_memory) != 0;
      return true;
    }
    case tag_message_bytes_max: return read_number(value, hello.message_bytes_max);
    case tag_calls_max: return read_number(value, hello.calls_max);
    case tag_stream_window_bytes: return read_number(value, hello.stream_window_bytes);
    case tag_refusal: return read_refusal(value, hello.refusal);
    case tag_offer: return read_one_of(value, transport_offer_bytes_max, hello.offers);
    case tag_selection: return read_named(value, transport_parameters_bytes_max, hello.selection.emplace());
    case tag_declined: return read_one_of(value, transport_reason_bytes_max, hello.declined);
    case tag_answer:
      if (value.size() > transport_parameters_bytes_max) return false;
      hello.answer.emplace(value.begin(), value.end());
      return true;
    case tag_unanswered:
      if (value.size() > transport_reason_bytes_max) return false;
      hello.unanswered.emplace(as_text(value));
      return true;
    case tag_ready: hello.ready = true; return value.empty();
    case tag_protection:
      if (value.size() != 1) return false;
      hello.protection = std::to_integer<std::uint8_t>(value[0]);
      return true;
    default: return true;  // Fields of later versions are ignored.
  }
}

}  // namespace

std::vector<std::byte> encode_hello(const Hello& hello) {
  ByteWriter out;
  out.bytes(as_bytes(magic))
      .number(hello.version_min)
      .number(hello.version_max)
      .number(std::uint16_t{0});  // The length of the body; filled below.
  put_number(out, tag_features, (hello.checksum ? feature_checksum : 0) | (hello.memory ? feature_memory : 0));
  put_number(out, tag_message_bytes_max, hello.message_bytes_max);
  put_number(out, tag_calls_max, hello.calls_max);
  put_number(out, tag_stream_window_bytes, hello.stream_window_bytes);
  if (hello.refusal) put_refusal(out, *hello.refusal);
  for (const NamedBytes& offer : std::span(hello.offers).first(std::min(hello.offers.size(), transports_max))) {
    put_named(out, tag_offer, offer, transport_offer_bytes_max);
  }
  if (hello.selection) put_named(out, tag_selection, *hello.selection, transport_parameters_bytes_max);
  for (const NamedBytes& one : std::span(hello.declined).first(std::min(hello.declined.size(), transports_max))) {
    put_named(out, tag_declined, one, transport_reason_bytes_max);
  }
  if (hello.answer) put_bytes(out, tag_answer, *hello.answer);
  if (hello.unanswered) {
    put_bytes(out, tag_unanswered, as_bytes(std::string_view(*hello.unanswered).substr(0, transport_reason_bytes_max)));
  }
  if (hello.ready) put_bytes(out, tag_ready, {});
  if (hello.protection != 0) {
    const std::byte protection{hello.protection};
    put_bytes(out, tag_protection, Bytes(&protection, 1));
  }
  return out.replace(6, static_cast<std::uint16_t>(out.size() - hello_prefix_bytes)).take();
}

bool is_hello(Bytes first) noexcept {
  return std::memcmp(first.data(), magic.data(), std::min(first.size(), magic.size())) == 0;
}

Result<std::size_t> hello_body_bytes(Bytes prefix) {
  if (!is_hello(prefix))
    return hello_error("it does not begin with HWSR: the peer speaks another protocol; is this a Hawser port?");
  const std::size_t bytes = load_le<std::uint16_t>(prefix.data() + 6);
  if (bytes > hello_body_bytes_max) {
    return hello_error("a body of " + count_text(bytes, "byte") + " exceeds " + std::to_string(hello_body_bytes_max) +
                       " bytes");
  }
  return bytes;
}

Result<Hello> decode_hello(Bytes whole) {
  if (whole.size() < hello_prefix_bytes)
    return hello_error("it ends after " + count_text(whole.size(), "byte") + ", within its prefix of " +
                       count_text(hello_prefix_bytes, "byte"));
  TRY(std::size_t body, hello_body_bytes(whole));
  if (whole.size() != hello_prefix_bytes + body) {
    return hello_error("a body of " + count_text(whole.size() - hello_prefix_bytes, "byte") + ", announced as " +
                       std::to_string(body));
  }
  Hello hello;
  hello.version_min = load_le<std::uint8_t>(whole.data() + 4);
  hello.version_max = load_le<std::uint8_t>(whole.data() + 5);
  if (hello.version_min == 0 || hello.version_min > hello.version_max) {
    return hello_error("versions " + std::to_string(hello.version_min) + " to " + std::to_string(hello.version_max) +
                       " are not a range");
  }
  for (ByteReader reader(whole.subspan(hello_prefix_bytes)); !reader.at_end();) {
    const auto tag = reader.number<std::uint16_t>();
    const auto length = reader.number<std::uint16_t>();
    if (!reader.complete()) return hello_error("the head of its last field is cut short");
    const Bytes value = reader.bytes(length);
    if (!reader.complete()) {
      return hello_error("field " + std::to_string(tag) + " of " + count_text(length, "byte") +
                         " passes the end of the body");
    }
    if (!read_field(hello, tag, value)) return hello_error("field " + std::to_string(tag) + " is malformed");
  }
  return hello;
}

Result<void> check_server_hello(const Hello& hello) {
  if (hello.version_min != version || hello.version_max != version) {
    return hello_error("versions " + std::to_string(hello.version_min) + " to " + std::to_string(hello.version_max) +
                           " instead of the one version that the client supports (" + std::to_string(version) + ")",
                       "server ");
  }
  if (hello.calls_max == 0) return hello_error("calls_max is 0", "server ");
  if (hello.message_bytes_max < message_bytes_least) {
    return hello_error("message_bytes_max is " + std::to_string(hello.message_bytes_max) +
                           ", and the shortest message has " + std::to_string(message_bytes_least) + " bytes",
                       "server ");
  }
  return {};
}

}  // namespace hawser::wire
