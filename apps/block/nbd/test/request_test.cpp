// Requests and replies without I/O.
#include "block/nbd/request.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "block/nbd/protocol.h"
#include "block/nbd/reply.h"

namespace hawser::block::nbd {
namespace {

constexpr std::uint64_t mebibyte = 1 << 20;
constexpr Negotiated all{.structured_replies = true, .allocation_context = true};

std::string request_bytes(const NbdRequest& request) {
  std::string bytes;
  append(bytes, request_magic);
  append(bytes, request.flags);
  append(bytes, request.type);
  append(bytes, request.cookie);
  append(bytes, request.offset);
  append(bytes, request.length);
  return bytes;
}

std::uint32_t error_of(const NbdRequest& request, bool read_only = false, Negotiated negotiated = all) {
  return check(request, {.name = "disk", .size = mebibyte, .read_only = read_only}, negotiated).error;
}

std::string text_of(const ReplyHead& head) { return std::string(as_text(head.bytes())); }

TEST(NbdRequest, IsReadFromPieces) {
  const NbdRequest sent{
      .flags = 1, .type = command::write, .cookie = 0x0102030405060708, .offset = 1ULL << 40, .length = 9};
  const std::string bytes = request_bytes(sent);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(RequestReader().next(as_bytes(bytes).first(size)).event, RequestReader::Event::more) << size;
  }
  RequestReader reader;
  const RequestReader::Step step = reader.next(as_bytes(bytes + "rest"));
  EXPECT_EQ(step.event, RequestReader::Event::request);
  EXPECT_EQ(step.consumed, RequestReader::header_bytes);
  EXPECT_EQ(step.request.flags, 1);
  EXPECT_EQ(step.request.type, command::write);
  EXPECT_EQ(step.request.cookie, sent.cookie);
  EXPECT_EQ(step.request.offset, sent.offset);
  EXPECT_EQ(step.request.length, 9U);
  EXPECT_EQ(reader.data_bytes(), 9U);
  reader.took_data(5);
  EXPECT_EQ(reader.data_bytes(), 4U);
}

TEST(NbdRequest, AWrongMagicIsFoundEarly) {
  EXPECT_EQ(RequestReader().next(as_bytes("GET ")).event, RequestReader::Event::invalid);
  EXPECT_EQ(RequestReader().next(as_bytes(std::string(28, '\0'))).event, RequestReader::Event::invalid);
}

TEST(NbdRequest, RangesAreChecked) {
  const std::uint32_t out = status::invalid;
  const struct {
    std::uint64_t offset;
    std::uint32_t length;
    bool fits;
  } ranges[] = {
      {0, 1, true},           {mebibyte - 1, 1, true},         {mebibyte, 1, false},         {mebibyte - 1, 2, false},
      {UINT64_MAX, 1, false}, {UINT64_MAX, UINT32_MAX, false}, {UINT64_MAX - 10, 11, false}, {0, 0, false}};
  for (const auto& range : ranges) {
    for (const std::uint16_t type : {command::read, command::trim, command::block_status}) {
      EXPECT_EQ(error_of({.type = type, .offset = range.offset, .length = range.length}) == status::ok, range.fits);
    }
  }
  EXPECT_EQ(error_of({.type = command::read, .offset = mebibyte, .length = 1}), out);
  EXPECT_EQ(error_of({.type = command::write, .offset = mebibyte, .length = 1}), status::no_space);
  EXPECT_EQ(error_of({.type = command::write_zeroes, .offset = mebibyte, .length = 1}), status::no_space);
  EXPECT_EQ(error_of({.type = command::flush, .offset = 1}), out);
  EXPECT_EQ(error_of({.type = command::flush}), status::ok);
  EXPECT_EQ(error_of({.type = command::read, .length = payload_bytes_max + 1}), status::overflow);
  EXPECT_EQ(error_of({.type = command::write, .length = payload_bytes_max + 1}), status::invalid);
}

TEST(NbdRequest, FlagsBelongToCommands) {
  const std::uint16_t every = command_flag::fua;
  for (const std::uint16_t type : {command::read, command::write, command::trim, command::write_zeroes}) {
    EXPECT_EQ(error_of({.flags = every, .type = type, .length = 1}), status::ok);
    EXPECT_EQ(error_of({.flags = 1U << 15, .type = type, .length = 1}), status::invalid);
  }
  EXPECT_EQ(error_of({.flags = command_flag::fast_zero, .type = command::write, .length = 1}), status::invalid);
  EXPECT_EQ(error_of({.flags = command_flag::fast_zero, .type = command::write_zeroes, .length = 1}), status::ok);
  const NbdRequest fragment{.flags = command_flag::dont_fragment, .type = command::read, .length = 1};
  EXPECT_EQ(error_of(fragment), status::ok);
  EXPECT_EQ(error_of(fragment, false, {}), status::invalid);
  EXPECT_EQ(error_of({.type = command::block_status, .length = 1}, false, {.structured_replies = true}),
            status::invalid);
  EXPECT_EQ(error_of({.type = 5, .length = 1}), status::invalid);
  EXPECT_EQ(error_of({.type = command::write, .length = 1}, true), status::not_permitted);
  EXPECT_EQ(error_of({.type = command::write_zeroes, .length = 1}, true), status::not_permitted);
  EXPECT_EQ(error_of({.type = command::read, .length = 1}, true), status::ok);
}

TEST(NbdReply, HeadsHaveTheirSizes) {
  const NbdRequest request{.cookie = 7, .offset = 9, .length = 100};
  EXPECT_EQ(text_of(ReplyHead::success(request)).size(), 16U);
  EXPECT_EQ(text_of(ReplyHead::data(request, false)), text_of(ReplyHead::success(request)));
  const std::string data = text_of(ReplyHead::data(request, true));
  ASSERT_EQ(data.size(), 28U);
  EXPECT_EQ(load<std::uint32_t>(as_bytes(data)), structured_reply_magic);
  EXPECT_EQ(load<std::uint64_t>(as_bytes(data).subspan(8)), 7U);
  EXPECT_EQ(load<std::uint32_t>(as_bytes(data).subspan(16)), 108U);
  EXPECT_EQ(load<std::uint64_t>(as_bytes(data).subspan(20)), 9U);
}

TEST(NbdReply, ErrorsHaveBoundedTexts) {
  const NbdRequest request{.cookie = 7};
  const std::string simple = text_of(ReplyHead::failure(request, false, status::io, "text"));
  ASSERT_EQ(simple.size(), 16U);
  EXPECT_EQ(load<std::uint32_t>(as_bytes(simple).subspan(4)), status::io);
  const std::string chunk = text_of(ReplyHead::failure(request, true, status::io, std::string(5000, 'x')));
  const auto text_bytes = load<std::uint16_t>(as_bytes(chunk).subspan(24));
  EXPECT_LE(text_bytes, string_bytes_max);
  EXPECT_EQ(load<std::uint32_t>(as_bytes(chunk).subspan(16)), text_bytes + 6U);
  EXPECT_EQ(chunk.size(), 26U + text_bytes);
}

TEST(NbdReply, ExtentsEndWithTheRequest) {
  const std::vector<Extent> extents = {{4096, state_zero}, {mebibyte, 0}, {4096, state_zero}};
  const std::string two = text_of(ReplyHead::block_status({.length = 8192}, extents));
  ASSERT_EQ(two.size(), 20U + 4 + 16);
  EXPECT_EQ(load<std::uint32_t>(as_bytes(two).subspan(24)), 4096U);
  EXPECT_EQ(load<std::uint32_t>(as_bytes(two).subspan(28)), state_zero);
  EXPECT_EQ(load<std::uint32_t>(as_bytes(two).subspan(32)), 4096U) << "cut";
  const std::string one =
      text_of(ReplyHead::block_status({.flags = command_flag::one_extent, .length = 8192}, extents));
  EXPECT_EQ(one.size(), 20U + 4 + 8);
}

TEST(NbdReply, ErrnoValuesAreMapped) {
  EXPECT_EQ(status_of(Error::application(EROFS, "")), status::not_permitted);
  EXPECT_EQ(status_of(Error::application(EDQUOT, "")), status::no_space);
  EXPECT_EQ(status_of(Error::application(EIO, "")), status::io);
  EXPECT_EQ(status_of(Error::application(ENODEV, "")), status::io);
  EXPECT_EQ(status_of(Error::of_call(ErrorCode::unavailable, "")), status::io);
}

}  // namespace
}  // namespace hawser::block::nbd
