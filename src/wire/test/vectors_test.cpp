#include <gtest/gtest.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "wire/frame.h"
#include "wire/hello.h"
#include "wire/metadata.h"

// Checks the vectors of tests/vectors. The README there describes the format of the files.
namespace hawser::wire {
namespace {

struct Vector {
  std::string name;
  std::multimap<std::string, std::string> values;
  std::vector<std::string> metadata;  // In the order of the message.

  bool has(const std::string& key) const { return values.contains(key); }
  std::string text(const std::string& key) const {
    const auto found = values.find(key);
    EXPECT_NE(found, values.end()) << name << " lacks " << key;
    return found == values.end() ? std::string() : found->second;
  }
  std::uint32_t number(const std::string& key) const { return static_cast<std::uint32_t>(large_number(key)); }
  std::int64_t large_number(const std::string& key) const {
    const std::string digits = text(key);
    std::int64_t value = 0;
    EXPECT_EQ(std::from_chars(digits.data(), digits.data() + digits.size(), value).ec, std::errc())
        << name << " " << key;
    return value;
  }
  std::string octets(const std::string& key) const {
    const std::string digits = text(key);
    std::string out;
    if (digits == "-") return out;
    EXPECT_EQ(digits.size() % 2, 0U) << name << " " << key;
    for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
      unsigned value = 0;
      EXPECT_EQ(std::from_chars(digits.data() + i, digits.data() + i + 2, value, 16).ec, std::errc()) << name;
      out.push_back(static_cast<char>(value));
    }
    return out;
  }
};

std::vector<Vector> read_vectors(const std::string& file) {
  const auto folder = std::filesystem::path(__FILE__).parent_path() / "../../../tests/vectors";
  std::ifstream in(folder / file);
  EXPECT_TRUE(in) << file;
  std::vector<Vector> vectors;
  bool within = false;
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) {
      within = false;
      continue;
    }
    if (line.front() == '#') continue;
    const std::size_t space = line.find(' ');
    const std::string key = line.substr(0, space);
    const std::string value = space == std::string::npos ? std::string() : line.substr(space + 1);
    if (!std::exchange(within, true)) {
      vectors.push_back({value, {}, {}});
    } else if (key == "metadata") {
      vectors.back().metadata.push_back(value);
    } else {
      vectors.back().values.emplace(key, value);
    }
  }
  return vectors;
}

constexpr std::string_view kind_names[] = {
    "",     "request", "response", "error",  "cancel",      "stream_data", "stream_end", "stream_credit",
    "ping", "pong",    "goaway",   "memory", "memory_reply"};

FrameKind kind_of(const Vector& vector) {
  const std::string name = vector.text("kind");
  for (std::uint8_t kind = kind_min; kind <= kind_max; ++kind) {
    if (kind_names[kind] == name) return static_cast<FrameKind>(kind);
  }
  ADD_FAILURE() << vector.name << ": no kind " << name;
  return FrameKind::request;
}

// Decodes and checks a frame as a session does on receipt.
Result<Frame> receive(Bytes head, Bytes payload) {
  Result<Frame> frame = decode_frame(head, payload, payload.size());
  if (!frame) return frame;
  if (!checksum_matches(head, payload)) return fail(ErrorCode::protocol_error, "the checksum does not match");
  if (!check_metadata(frame->metadata)) return fail(ErrorCode::protocol_error, "malformed metadata");
  return frame;
}

// Calls `use` with the frame that the vector describes. The vector's `method` and `signature` are the words of the
// header that hold the code and scope of an ERROR and the bytes of a STREAM_CREDIT.
template <class Use>
void with_frame_of(const Vector& vector, Use use) {
  const CallId call = CallId::from_number(vector.number("call"));
  const std::uint32_t method = vector.number("method");
  const std::uint32_t signature = vector.number("signature");
  const std::int64_t deadline = vector.large_number("deadline_us");
  const auto attachment = static_cast<std::uint32_t>(vector.octets("attachment").size());
  switch (kind_of(vector)) {
    case FrameKind::request:
      return use(RequestFrame{.call = call,
                              .method = method,
                              .signature = signature,
                              .deadline = deadline == 0 ? 0 : encode_deadline(deadline),
                              .attachment_bytes = attachment,
                              .idempotent = vector.has("idempotent")});
    case FrameKind::response: return use(ResponseFrame{.call = call, .attachment_bytes = attachment});
    case FrameKind::error:
      return use(ErrorFrame{.call = call,
                            .code = static_cast<ErrorCode>(method & 0xffffU),
                            .scope = static_cast<ErrorScope>(method >> 16),
                            .application_code = static_cast<std::int32_t>(signature)});
    case FrameKind::cancel: return use(CancelFrame{.call = call});
    case FrameKind::stream_data: return use(StreamDataFrame{.call = call});
    case FrameKind::stream_end: return use(StreamEndFrame{.call = call});
    case FrameKind::stream_credit: return use(CreditFrame{.call = call, .bytes = signature});
    case FrameKind::ping: return use(PingFrame{});
    case FrameKind::pong: return use(PongFrame{});
    case FrameKind::goaway: return use(GoawayFrame{});
    case FrameKind::memory:
      return use(MemoryFrame{.call = call, .action = method & 0xffU, .wants_crc = (method & 0x100U) != 0});
    case FrameKind::memory_reply:
      return use(MemoryReplyFrame{.call = call, .code = static_cast<ErrorCode>(method), .crc = signature});
  }
}

void expect_fields(const Vector& vector, const Frame& frame) {
  EXPECT_EQ(frame.kind, kind_of(vector));
  EXPECT_EQ(frame.call().number(), vector.number("call"));
  EXPECT_EQ((load_le<std::uint8_t>(frame.header + at::flags) & flag_checksum) != 0, vector.has("checksum"));
  if (vector.has("checksum")) {
    EXPECT_EQ(load_le<std::uint32_t>(frame.header + at::checksum), vector.number("checksum"));
  }
  with_frame_of(vector, [&](const auto& expected) {
    visit(frame, [&](const auto& decoded) {
      if constexpr (std::is_same_v<decltype(decoded), decltype(expected)>) {
        EXPECT_EQ(decoded, expected);
        if constexpr (requires { decoded.deadline; }) {
          EXPECT_EQ(decode_deadline(decoded.deadline), vector.large_number("deadline_us"));
        }
      } else {
        ADD_FAILURE() << "decoded as " << to_string(decoded.kind);
      }
    });
  });
  EXPECT_EQ(as_text(frame.body), vector.octets("body"));
  EXPECT_EQ(as_text(frame.payload), vector.octets("arguments"));
  EXPECT_EQ(as_text(frame.attachment), vector.octets("attachment"));
  MetadataReader reader(frame.metadata);
  std::string_view key;
  std::string_view value;
  for (const std::string& entry : vector.metadata) {
    ASSERT_TRUE(reader.next(key, value));
    EXPECT_EQ(std::string(key) + "=" + std::string(value), entry);
  }
  EXPECT_FALSE(reader.next(key, value));
}

std::string encode(const Vector& vector) {
  const std::string body = vector.octets("body");
  const std::string payload = vector.octets("arguments") + vector.octets("attachment");
  std::size_t metadata_bytes = 0;
  for (const std::string& entry : vector.metadata) metadata_bytes += 3 + entry.size() - 1;
  std::string head(header_bytes + metadata_bytes, '\0');
  auto* const data = reinterpret_cast<std::byte*>(head.data());
  with_frame_of(vector, [&](const auto& frame) {
    encode(data, frame,
           {.metadata_bytes = static_cast<std::uint16_t>(metadata_bytes), .checksum = vector.has("checksum")});
  });
  std::byte* at = data + header_bytes;
  for (const std::string& entry : vector.metadata) {
    const std::size_t equals = entry.find('=');
    at =
        write_metadata_entry(at, std::string_view(entry).substr(0, equals), std::string_view(entry).substr(equals + 1));
  }
  head += body;
  if (vector.has("checksum")) {
    const Bytes bytes = as_bytes(payload);
    const ConstBuffer piece{bytes.data(), bytes.size()};
    write_checksum({reinterpret_cast<std::byte*>(head.data()), head.size()}, std::span(&piece, 1));
  }
  return head;
}

TEST(Vectors, Frames) {
  const std::vector<Vector> vectors = read_vectors("frames.txt");
  EXPECT_GE(vectors.size(), 40U);
  for (const Vector& vector : vectors) {
    SCOPED_TRACE(vector.name);
    const std::string head = vector.octets("head");
    const std::string payload = vector.octets("payload");
    const Result<Frame> frame = receive(as_bytes(head), as_bytes(payload));
    if (vector.has("error")) {
      ASSERT_FALSE(frame);
      EXPECT_EQ(frame.error().code, ErrorCode::protocol_error);
      EXPECT_NE(frame.error().text.find(vector.text("error")), std::string::npos) << frame.error().text;
      continue;
    }
    ASSERT_TRUE(frame) << frame.error().text;
    expect_fields(vector, *frame);
    EXPECT_EQ(encode(vector), head);
  }
}

TEST(Vectors, Hellos) {
  const std::vector<Vector> vectors = read_vectors("hellos.txt");
  EXPECT_GE(vectors.size(), 20U);
  for (const Vector& vector : vectors) {
    SCOPED_TRACE(vector.name);
    const std::string bytes = vector.octets("bytes");
    const Result<Hello> hello = decode_hello(as_bytes(bytes));
    if (vector.has("error")) {
      ASSERT_FALSE(hello);
      EXPECT_EQ(hello.error().code, ErrorCode::protocol_error);
      EXPECT_NE(hello.error().text.find(vector.text("error")), std::string::npos) << hello.error().text;
      continue;
    }
    ASSERT_TRUE(hello) << hello.error().text;
    Hello expected{.version_min = static_cast<std::uint8_t>(vector.number("version_min")),
                   .version_max = static_cast<std::uint8_t>(vector.number("version_max")),
                   .checksum = vector.text("checksum") == "yes",
                   .memory = vector.has("memory"),
                   .message_bytes_max = vector.number("message_bytes_max"),
                   .calls_max = vector.number("calls_max"),
                   .stream_window_bytes = vector.number("stream_window_bytes")};
    if (vector.has("refusal")) {
      const std::string refusal = vector.text("refusal");
      const std::size_t space = refusal.find(' ');
      expected.refusal = Error::of_connection(Initiator::peer, static_cast<ErrorCode>(std::stoi(refusal)),
                                              space == std::string::npos ? std::string() : refusal.substr(space + 1));
    }
    EXPECT_EQ(*hello, expected);
    if (!vector.has("canonical")) {
      EXPECT_EQ(as_text(encode_hello(expected)), bytes);
    }
  }
}

}  // namespace
}  // namespace hawser::wire
