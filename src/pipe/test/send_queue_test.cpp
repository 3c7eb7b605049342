#include "pipe/send_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace hawser::pipe {
namespace {

struct ReleaseCounter final : SendCompletion {
  void on_send_complete() noexcept override { ++notified; }
  int notified = 0;
};

void put(SendQueue& queue, std::string_view text) {
  std::memcpy(queue.reserve(text.size()), text.data(), text.size());
  queue.commit(text.size());
}

ConstBuffer piece_of(std::string_view text) { return {as_bytes(text).data(), text.size()}; }

Bytes only_bytes(const SendQueue& queue) {
  const ConstBuffer only = queue.only_piece();
  return {only.data, only.size};
}

std::string contents(const SendQueue& queue) {
  std::vector<ConstBuffer> pieces(100'000);
  std::string all;
  const std::size_t count = queue.peek(pieces);
  for (std::size_t i = 0; i < count; ++i) all.append(reinterpret_cast<const char*>(pieces[i].data), pieces[i].size);
  return all;
}

TEST(SendQueue, SmallOnesShareAPiece) {
  SendQueue queue;
  EXPECT_TRUE(queue.empty());
  put(queue, "one ");
  put(queue, "two");
  std::array<ConstBuffer, 4> pieces;
  EXPECT_EQ(queue.peek(pieces), 1U);
  EXPECT_EQ(contents(queue), "one two");
  EXPECT_EQ(queue.bytes(), 7U);
}

TEST(SendQueue, OnlyASinglePieceIsSentFromItsPlace) {
  SendQueue queue;
  ReleaseCounter owner;
  const std::string payload = "payload";
  EXPECT_EQ(queue.only_piece().data, nullptr);
  put(queue, "head ");
  ASSERT_NE(queue.only_piece().data, nullptr);
  queue.consume(2);
  EXPECT_EQ(as_text(only_bytes(queue)), "ad ");
  queue.borrow(std::array{piece_of(payload)}, &owner);
  EXPECT_EQ(queue.only_piece().data, nullptr);
  put(queue, "tail");
  EXPECT_EQ(contents(queue), "ad payloadtail");
  queue.consume(10);
  ASSERT_NE(queue.only_piece().data, nullptr);
  put(queue, " grows");
  EXPECT_EQ(as_text(only_bytes(queue)), "tail grows");
}

TEST(SendQueue, WhatFollowsASentPieceDoesNotGrowIt) {
  SendQueue queue;
  put(queue, "sent");
  queue.consume(4);
  EXPECT_EQ(queue.only_piece().data, nullptr);
  put(queue, "next");
  EXPECT_EQ(contents(queue), "next");
  EXPECT_EQ(queue.bytes(), 4U);
}

TEST(SendQueue, AReservationMayBeCommittedShorter) {
  SendQueue queue;
  std::memcpy(queue.reserve(1000), "abc", 3);
  queue.commit(3);
  put(queue, "def");
  EXPECT_EQ(contents(queue), "abcdef");
}

TEST(SendQueue, BorrowedMemoryIsNotCopied) {
  SendQueue queue;
  ReleaseCounter owner;
  const std::string payload = "payload";
  put(queue, "head ");
  queue.borrow(std::array{piece_of(payload)}, &owner);
  std::array<ConstBuffer, 4> pieces;
  ASSERT_EQ(queue.peek(pieces), 2U);
  EXPECT_EQ(pieces[1].data, as_bytes(payload).data());
  queue.consume(11);
  EXPECT_EQ(owner.notified, 0);
  queue.consume(1);
  EXPECT_EQ(owner.notified, 1);
  EXPECT_TRUE(queue.empty());
}

TEST(SendQueue, WithoutAnOwnerItIsCopied) {
  SendQueue queue;
  std::string payload = "payload";
  queue.borrow(std::array{piece_of(payload)}, nullptr);
  payload = "changed";
  EXPECT_EQ(contents(queue), "payload");
}

TEST(SendQueue, AnOwnerOfNothingIsToldAtOnce) {
  SendQueue queue;
  ReleaseCounter owner;
  queue.borrow(std::array{ConstBuffer{}, ConstBuffer{}}, &owner);
  EXPECT_EQ(owner.notified, 1);
  EXPECT_TRUE(queue.empty());
}

TEST(SendQueue, TheLastPieceTellsEvenIfEmptyOnesFollow) {
  SendQueue queue;
  ReleaseCounter owner;
  const std::string payload = "x";
  queue.borrow(std::array{piece_of(payload), ConstBuffer{}}, &owner);
  EXPECT_EQ(owner.notified, 0);
  queue.consume(1);
  EXPECT_EQ(owner.notified, 1);
}

TEST(SendQueue, DetachedMemoryIsCopiedAndItsOwnerForgotten) {
  SendQueue queue;
  auto owner = std::make_unique<ReleaseCounter>();
  ReleaseCounter other;
  auto payload = std::make_unique<std::string>("borrowed");
  const std::string kept = "kept";
  queue.borrow(std::array{piece_of(*payload)}, owner.get());
  queue.borrow(std::array{piece_of(kept)}, &other);
  queue.consume(2);
  queue.copy_and_release(*owner);
  owner.reset();
  payload.reset();
  EXPECT_EQ(contents(queue), "rrowedkept");
  queue.consume(queue.bytes());
  EXPECT_EQ(other.notified, 1);
}

TEST(SendQueue, ClearTellsEveryOwner) {
  ReleaseCounter first;
  ReleaseCounter second;
  const std::string payload = "payload";
  {
    SendQueue queue;
    queue.borrow(std::array{piece_of(payload), piece_of(payload)}, &first);
    queue.clear();
    EXPECT_EQ(first.notified, 1);
    EXPECT_TRUE(queue.empty());
    put(queue, "usable");
    queue.borrow(std::array{piece_of(payload)}, &second);
    EXPECT_EQ(contents(queue), "usablepayload");
  }
  EXPECT_EQ(second.notified, 1) << "the destructor clears";
}

TEST(SendQueue, APayloadOfManyPiecesTellsAtItsEndOnly) {
  SendQueue queue;
  ReleaseCounter owner;
  const std::string text = "0123456789";
  std::vector<ConstBuffer> pieces;
  for (std::size_t i = 0; i < 5000; ++i) pieces.push_back(piece_of(std::string_view(text).substr(i % 10, 1)));
  queue.borrow(pieces, &owner);
  for (std::size_t i = 0; i < 5000; ++i) {
    ASSERT_EQ(owner.notified, 0);
    std::array<ConstBuffer, 1> front;
    ASSERT_EQ(queue.peek(front), 1U);
    ASSERT_EQ(static_cast<char>(*front[0].data), text[i % 10]);
    queue.consume(1);
  }
  EXPECT_EQ(owner.notified, 1);
}

// Compares the queue with a string after random operations.
class Model {
 public:
  explicit Model(std::uint64_t seed) : random_(seed) {}

  void step() {
    switch (pick(8)) {
      case 0:
      case 1: {
        const std::string text = make_text(pick(10) == 0 ? 100'000 : 200);
        if (text.empty()) break;
        std::memcpy(queue_.reserve(text.size() + pick(50)), text.data(), text.size());
        queue_.commit(text.size());
        model_ += text;
        break;
      }
      case 2:
      case 3: borrow(true); break;
      case 4: borrow(false); break;
      case 5: copy_and_release(); break;
      default: consume(); break;
    }
    ASSERT_EQ(queue_.bytes(), model_.size());
    ASSERT_EQ(queue_.empty(), model_.empty());
    for (const Loan& loan : loans_) ASSERT_EQ(loan.owner->notified, loan.end <= left_ ? 1 : 0);
  }
  void finish() {
    queue_.clear();
    for (const Loan& loan : loans_) EXPECT_EQ(loan.owner->notified, 1);
  }

 private:
  struct Loan {
    std::unique_ptr<ReleaseCounter> owner;
    std::vector<std::string> memory;
    std::size_t end;  // Position in the stream at which the owner must be notified.
  };

  std::size_t pick(std::size_t below) { return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_); }
  std::string make_text(std::size_t size_max) {
    std::string text(pick(size_max + 1), '\0');
    for (char& c : text) c = static_cast<char>(random_());
    return text;
  }
  void borrow(bool owned) {
    Loan loan{std::make_unique<ReleaseCounter>(), {}, 0};
    std::vector<ConstBuffer> pieces;
    for (std::size_t i = pick(5); i != 0; --i) loan.memory.push_back(make_text(3000));
    for (const std::string& text : loan.memory) {
      pieces.push_back(piece_of(text));
      model_ += text;
    }
    queue_.borrow(pieces, owned ? loan.owner.get() : nullptr);
    loan.end = left_ + model_.size();
    // Memory that was queued without an owner has been copied and is freed here.
    if (!owned) return;
    // An owner of empty memory is notified at once, independently of what is queued before it.
    bool nothing = true;
    for (const std::string& text : loan.memory) nothing &= text.empty();
    if (nothing) loan.end = 0;
    loans_.push_back(std::move(loan));
  }
  void copy_and_release() {
    if (loans_.empty()) return;
    const std::size_t index = pick(loans_.size());
    const int notified = loans_[index].owner->notified;
    queue_.copy_and_release(*loans_[index].owner);
    ASSERT_EQ(loans_[index].owner->notified, notified);
    loans_.erase(loans_.begin() + static_cast<std::ptrdiff_t>(index));  // Frees the memory and the owner.
  }
  void consume() {
    std::vector<ConstBuffer> pieces(1 + pick(40));
    std::string seen;
    const std::size_t count = queue_.peek(pieces);
    for (std::size_t i = 0; i < count; ++i) seen.append(reinterpret_cast<const char*>(pieces[i].data), pieces[i].size);
    ASSERT_EQ(seen, model_.substr(0, seen.size()));
    ASSERT_EQ(seen.empty(), model_.empty());
    const std::size_t taken = pick(3) == 0 ? seen.size() : pick(seen.size() + 1);
    left_ += taken;
    queue_.consume(taken);
    model_.erase(0, taken);
    // The memory of notified owners is freed.
    std::erase_if(loans_, [&](const Loan& loan) { return loan.end <= left_ && loan.owner->notified == 1; });
  }

  std::mt19937_64 random_;
  SendQueue queue_;
  std::string model_;
  std::size_t left_ = 0;
  std::deque<Loan> loans_;
};

TEST(SendQueue, AgreesWithAString) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Model model(seed);
    for (int i = 0; i < 1500 && !testing::Test::HasFailure(); ++i) model.step();
    model.finish();
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace hawser::pipe
