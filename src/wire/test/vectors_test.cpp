#include <gtest/gtest.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "wire/frame.h"
#include "wire/hello.h"
#include "wire/metadata.h"

// The vectors of tests/vectors, which say themselves what they are.
namespace hawser::wire {
namespace {

struct Vector {
  std::string name;
  std::multimap<std::string, std::string> values;
  std::vector<std::string> metadata;  // In order.

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

constexpr std::string_view kind_names[] = {"",           "request",       "response", "error", "cancel", "stream_data",
                                           "stream_end", "stream_credit", "ping",     "pong",  "goaway"};

FrameKind kind_of(const Vector& vector) {
  const std::string name = vector.text("kind");
  for (std::uint8_t kind = kind_min; kind <= kind_max; ++kind) {
    if (kind_names[kind] == name) return static_cast<FrameKind>(kind);
  }
  ADD_FAILURE() << vector.name << ": no kind " << name;
  return FrameKind::request;
}

// What a session does to a frame on receipt.
Result<Frame> receive(Bytes head, Bytes payload) {
  Result<Frame> frame = decode_frame(head, payload, payload.size());
  if (!frame) return frame;
  if (!checksum_matches(head, payload)) return fail(ErrorCode::protocol_error, "the checksum does not match");
  if (!check_metadata(frame->metadata)) return fail(ErrorCode::protocol_error, "malformed metadata");
  return frame;
}

void expect_fields(const Vector& vector, const Frame& frame) {
  const Header& header = frame.header;
  EXPECT_EQ(header.kind, kind_of(vector));
  EXPECT_EQ(header.call, vector.number("call"));
  EXPECT_EQ(header.method, vector.number("method"));
  EXPECT_EQ(header.signature, vector.number("signature"));
  EXPECT_EQ(decode_deadline(header.deadline), vector.large_number("deadline_us"));
  EXPECT_EQ((header.flags & flag_checksum) != 0, vector.has("checksum"));
  if (vector.has("checksum")) {
    EXPECT_EQ(header.checksum, vector.number("checksum"));
  }
  EXPECT_EQ((header.flags & flag_idempotent) != 0, vector.has("idempotent"));
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
  Header header{.kind = kind_of(vector),
                .metadata_bytes = static_cast<std::uint16_t>(metadata_bytes),
                .call = vector.number("call"),
                .method = vector.number("method"),
                .signature = vector.number("signature"),
                .attachment_bytes = static_cast<std::uint32_t>(vector.octets("attachment").size())};
  if (vector.has("checksum")) header.flags |= flag_checksum;
  if (vector.has("idempotent")) header.flags |= flag_idempotent;
  if (const std::int64_t deadline = vector.large_number("deadline_us"); deadline != 0) {
    header.deadline = encode_deadline(deadline);
  }
  std::string head(header_bytes + metadata_bytes, '\0');
  auto* const data = reinterpret_cast<std::byte*>(head.data());
  write_header(data, header);
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
    store_le(reinterpret_cast<std::byte*>(head.data()) + 24, frame_checksum(as_bytes(head), std::span(&piece, 1)));
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
                   .message_bytes_max = vector.number("message_bytes_max"),
                   .calls_max = vector.number("calls_max"),
                   .stream_window_bytes = vector.number("stream_window_bytes")};
    if (vector.has("refusal")) {
      const std::string refusal = vector.text("refusal");
      const std::size_t space = refusal.find(' ');
      expected.refusal = Error{static_cast<ErrorCode>(std::stoi(refusal)), ErrorScope::connection, Initiator::peer, 0,
                               space == std::string::npos ? std::string() : refusal.substr(space + 1)};
    }
    EXPECT_EQ(*hello, expected);
    if (!vector.has("canonical")) {
      EXPECT_EQ(as_text(encode_hello(expected)), bytes);
    }
  }
}

}  // namespace
}  // namespace hawser::wire
