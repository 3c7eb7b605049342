#include "rpc/server/held_reply.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/crc32c.h"

namespace hawser::rpc {
namespace {

// A value that a handler has returned: its memory is on loan.
struct LoanedValue final : SendCompletion {
  void on_send_complete() noexcept override { ++returned; }
  ConstBuffer piece() const { return {as_bytes(text).data(), text.size()}; }

  std::string text = "a long sequence";
  int returned = 0;
};

std::string joined_pieces(std::span<const ConstBuffer> pieces) {
  std::string all;
  for (const ConstBuffer& piece : pieces) all += as_text(Bytes(piece.data, piece.size));
  return all;
}

void begin_held(HeldReply& reply, std::string_view body, std::size_t payload_bytes, Bytes attachment = {}) {
  const Metadata metadata = {{"from", "the handler"}};
  std::byte* const to =
      reply.begin({.body = body.size(), .payload = payload_bytes}, {.attachment = attachment, .metadata = &metadata});
  std::memcpy(to, body.data(), body.size());
}

TEST(HeldReply, PiecesStayOnLoanUntilTheSessionHasThem) {
  HeldReply reply;
  LoanedValue value;
  EXPECT_EQ(reply.state(), HeldReply::State::nothing);
  begin_held(reply, "head", value.text.size());
  reply.end(std::array{value.piece()}, &value, nullptr);
  EXPECT_EQ(reply.state(), HeldReply::State::reply);
  EXPECT_EQ(as_text(reply.body()), "head");
  EXPECT_EQ(reply.bytes(), 4 + value.text.size());
  EXPECT_EQ(reply.checksum(), crc32c(as_bytes("heada long sequence")));
  EXPECT_EQ(reply.pieces()[0].data, as_bytes(value.text).data()) << "it is not copied";
  reply.add_metadata({{"from", "an interceptor"}});
  EXPECT_EQ(*reply.extras().metadata, (Metadata{{"from", "the handler"}, {"from", "an interceptor"}}));
  EXPECT_EQ(reply.pass(), &value);
  EXPECT_EQ(reply.state(), HeldReply::State::passed);
  reply.release_loan();
  EXPECT_EQ(value.returned, 0) << "the session returns it";
}

TEST(HeldReply, PiecesWithoutAnOwnerAreCopied) {
  HeldReply reply;
  std::string value = "value ";
  std::string attachment = "attachment";
  begin_held(reply, "", value.size(), as_bytes(attachment));
  reply.end(std::array{ConstBuffer{as_bytes(value).data(), value.size()},
                       ConstBuffer{as_bytes(attachment).data(), attachment.size()}},
            nullptr, nullptr);
  value.assign(value.size(), 'x');
  attachment.assign(attachment.size(), 'x');
  EXPECT_EQ(joined_pieces(reply.pieces()), "value attachment");
  EXPECT_EQ(as_text(reply.extras().attachment), "attachment");
  EXPECT_EQ(reply.bytes(), 16U);
  EXPECT_EQ(reply.pass(), nullptr);
}

TEST(HeldReply, MemoryThatGoesAwayIsCopied) {
  HeldReply reply;
  LoanedValue value;
  LoanedValue other;
  begin_held(reply, "", value.text.size());
  reply.end(std::array{value.piece()}, &value, nullptr);
  reply.copy_and_release(other);
  EXPECT_EQ(reply.pieces()[0].data, as_bytes(value.text).data()) << "another one's memory";
  reply.copy_and_release(value);
  value.text.assign(value.text.size(), 'x');
  EXPECT_EQ(joined_pieces(reply.pieces()), "a long sequence");
  EXPECT_EQ(reply.pass(), nullptr);
  EXPECT_EQ(value.returned, 0) << "it has ended the loan itself";
}

TEST(HeldReply, AnOwnerWhosePiecesAreNotNeededIsNotified) {
  HeldReply without_pieces;
  LoanedValue value;
  begin_held(without_pieces, "body", 0);
  without_pieces.end({}, &value, nullptr);
  EXPECT_EQ(value.returned, 1);
  HeldReply replaced;
  begin_held(replaced, "", value.text.size());
  replaced.end(std::array{value.piece()}, &value, nullptr);
  replaced.release_loan();
  replaced.release_loan();
  EXPECT_EQ(value.returned, 2);
}

TEST(HeldReply, TheReplyIsChargedAboveTheLimits) {
  detail::ReceiveBudget budget(8, 8);
  detail::ReceiveAccount account(&budget);
  HeldReply reply;
  LoanedValue value;
  begin_held(reply, "head", value.text.size());
  EXPECT_EQ(account.used(), 0U);
  reply.end(std::array{value.piece()}, &value, &account);
  EXPECT_EQ(account.used(), reply.bytes());
  reply.release_charge();
  EXPECT_EQ(account.used(), 0U);
}

TEST(HeldReply, AnErrorIsTheAnswer) {
  HeldReply reply;
  reply.set_error(Error::of_call(ErrorCode::limit_exceeded, "too much"));
  EXPECT_EQ(reply.state(), HeldReply::State::error);
  EXPECT_EQ(reply.error().text, "too much");
  EXPECT_EQ(reply.take_error().code, ErrorCode::limit_exceeded);
}

}  // namespace
}  // namespace hawser::rpc
