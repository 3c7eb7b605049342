// The negotiation without I/O: options as clients send them, and options that no client sends.
#include "block/nbd/handshake.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "block/nbd/protocol.h"

namespace hawser::block::nbd {
namespace {

std::string option_bytes(std::uint32_t option, std::string_view data) {
  std::string bytes;
  append(bytes, option_magic);
  append(bytes, option);
  append(bytes, static_cast<std::uint32_t>(data.size()));
  return bytes.append(data);
}

std::string text_bytes(std::string_view text) {
  std::string bytes;
  append(bytes, static_cast<std::uint32_t>(text.size()));
  return bytes.append(text);
}

std::string info_data(std::string_view name, std::vector<std::uint16_t> informations = {}) {
  std::string data = text_bytes(name);
  append(data, static_cast<std::uint16_t>(informations.size()));
  for (const std::uint16_t information : informations) append(data, information);
  return data;
}

std::string context_data(std::string_view name, std::vector<std::string> queries) {
  std::string data = text_bytes(name);
  append(data, static_cast<std::uint32_t>(queries.size()));
  for (const std::string& query : queries) data += text_bytes(query);
  return data;
}

struct Reply {
  std::uint32_t option = 0;
  std::uint32_t type = 0;
  std::string data;
};

// A server with the volume "disk", and what it has sent.
class NegotiatingServer {
 public:
  explicit NegotiatingServer(std::uint32_t flags = fixed_newstyle | no_zeroes, TlsOffer tls = TlsOffer::none)
      : handshake(tls) {
    EXPECT_EQ(handshake.output().size(), 18U);
    handshake.output().clear();
    std::string bytes;
    append(bytes, flags);
    wants = give(bytes);
  }

  // Gives the bytes in pieces of `piece` bytes and answers the questions.
  NbdHandshake::Wants give(std::string_view bytes, std::size_t piece = SIZE_MAX) {
    while (!bytes.empty() || !held.empty()) {
      const std::size_t part = std::min(piece, bytes.size());
      held.append(bytes.substr(0, part));
      bytes.remove_prefix(part);
      NbdHandshake::Step step;
      do {
        step = handshake.next(as_bytes(held));
        held.erase(0, step.consumed);
        if (step.wants == NbdHandshake::Wants::names) handshake.answer_names(std::vector<std::string>{"disk", "other"});
        if (step.wants == NbdHandshake::Wants::device) step.wants = handshake.answer_device(find(handshake.name()));
        if (step.wants == NbdHandshake::Wants::close || step.wants == NbdHandshake::Wants::transmission ||
            step.wants == NbdHandshake::Wants::tls) {
          return step.wants;
        }
      } while (step.consumed > 0);
      if (bytes.empty()) break;
    }
    return NbdHandshake::Wants::bytes;
  }
  NbdHandshake::Wants send(std::uint32_t option, std::string_view data = {}) {
    return give(option_bytes(option, data));
  }

  Result<ExportInfo> find(const std::string& name) const {
    if (name != "disk") return std::unexpected(Error::application(ENOENT, "there is no volume"));
    return ExportInfo{.name = "disk", .size = 1 << 20, .read_only = read_only};
  }

  // Takes the next reply out of the output.
  Reply reply() {
    std::string& out = handshake.output();
    if (out.size() < 20) return {};
    EXPECT_EQ(load<std::uint64_t>(as_bytes(out)), option_reply_magic);
    const auto size = load<std::uint32_t>(as_bytes(out).subspan(16));
    Reply reply{load<std::uint32_t>(as_bytes(out).subspan(8)), load<std::uint32_t>(as_bytes(out).subspan(12)),
                out.substr(20, size)};
    EXPECT_EQ(reply.data.size(), size);
    out.erase(0, 20 + size);
    return reply;
  }
  std::uint32_t last_type() {
    Reply last;
    while (!handshake.output().empty()) last = reply();
    return last.type;
  }

  NbdHandshake handshake;
  NbdHandshake::Wants wants = NbdHandshake::Wants::bytes;
  std::string held;
  bool read_only = false;
};

std::uint16_t flags_of(const Reply& information) { return load<std::uint16_t>(as_bytes(information.data).subspan(10)); }

TEST(NbdHandshake, GoEntersTheTransmission) {
  NegotiatingServer server;
  EXPECT_EQ(server.send(option::structured_reply), NbdHandshake::Wants::bytes);
  EXPECT_EQ(server.reply().type, option_reply::ack);
  const std::vector<std::uint16_t> asked = {information::block_size, information::name, 77, information::block_size};
  EXPECT_EQ(server.send(option::go, info_data("disk", asked)), NbdHandshake::Wants::transmission);
  const Reply export_ = server.reply();
  EXPECT_EQ(export_.type, option_reply::info);
  EXPECT_EQ(export_.data.size(), 12U);
  EXPECT_EQ(load<std::uint64_t>(as_bytes(export_.data).subspan(2)), 1U << 20);
  EXPECT_NE(flags_of(export_) & transmission::dont_fragment, 0);
  EXPECT_NE(flags_of(export_) & transmission::multi_connection, 0);
  const Reply block_size = server.reply();
  EXPECT_EQ(block_size.data.size(), 14U);
  EXPECT_EQ(load<std::uint32_t>(as_bytes(block_size.data).subspan(2)), 1U);
  EXPECT_EQ(load<std::uint32_t>(as_bytes(block_size.data).subspan(6)), 4096U);
  EXPECT_EQ(load<std::uint32_t>(as_bytes(block_size.data).subspan(10)), 32U << 20);
  EXPECT_EQ(server.reply().data.substr(2), "disk");
  EXPECT_EQ(server.reply().type, option_reply::ack);
  EXPECT_TRUE(server.handshake.output().empty()) << "an information was sent twice";
  EXPECT_TRUE(server.handshake.negotiated().structured_replies);
  EXPECT_FALSE(server.handshake.negotiated().allocation_context);
}

TEST(NbdHandshake, ExportNameHasZerosUnlessTheyAreRefused) {
  for (const bool zeroes : {false, true}) {
    NegotiatingServer server(zeroes ? fixed_newstyle : fixed_newstyle | no_zeroes);
    EXPECT_EQ(server.send(option::export_name, "disk"), NbdHandshake::Wants::transmission);
    EXPECT_EQ(server.handshake.output().size(), zeroes ? 134U : 10U);
  }
  NegotiatingServer server;
  EXPECT_EQ(server.send(option::export_name, "absent"), NbdHandshake::Wants::close);
  EXPECT_TRUE(server.handshake.output().empty());
}

TEST(NbdHandshake, AReadOnlyExportOffersNoWrites) {
  NegotiatingServer server;
  server.read_only = true;
  EXPECT_EQ(server.send(option::info, info_data("disk")), NbdHandshake::Wants::bytes);
  const std::uint16_t flags = flags_of(server.reply());
  EXPECT_NE(flags & transmission::read_only, 0);
  EXPECT_EQ(flags & (transmission::trim | transmission::write_zeroes | transmission::fast_zero), 0);
  EXPECT_EQ(flags & transmission::dont_fragment, 0) << "without structured replies";
}

TEST(NbdHandshake, TheContextBelongsToOneExport) {
  for (const bool same : {true, false}) {
    NegotiatingServer server;
    server.send(option::structured_reply);
    const std::string queries = context_data("disk", {"qemu:dirty-bitmap:x", "base:allocation", "base:other"});
    server.send(option::set_meta_context, queries);
    server.reply();
    const Reply context = server.reply();
    EXPECT_EQ(context.type, option_reply::meta_context);
    EXPECT_EQ(context.data.substr(4), "base:allocation");
    EXPECT_EQ(server.reply().type, option_reply::ack);
    // A later SET replaces the selection, also if it fails.
    if (!same) server.send(option::set_meta_context, context_data("absent", {"base:allocation"}));
    EXPECT_EQ(server.send(option::go, info_data("disk")), NbdHandshake::Wants::transmission);
    EXPECT_EQ(server.handshake.negotiated().allocation_context, same);
  }
}

TEST(NbdHandshake, ContextsAreListed) {
  NegotiatingServer server;
  server.send(option::list_meta_context, context_data("disk", {}));
  EXPECT_EQ(server.last_type(), option_reply::invalid) << "without structured replies";
  server.send(option::structured_reply);
  server.reply();
  const std::pair<std::vector<std::string>, std::uint32_t> cases[] = {{{}, option_reply::meta_context},
                                                                      {{"base:"}, option_reply::meta_context},
                                                                      {{"base:allocation"}, option_reply::meta_context},
                                                                      {{"other:x"}, option_reply::ack}};
  for (const auto& [queries, type] : cases) {
    server.send(option::list_meta_context, context_data("disk", queries));
    EXPECT_EQ(server.reply().type, type);
    server.handshake.output().clear();
  }
  // The wildcard selects nothing.
  server.send(option::set_meta_context, context_data("disk", {"base:"}));
  EXPECT_EQ(server.reply().type, option_reply::ack);
}

TEST(NbdHandshake, ListAndAbort) {
  NegotiatingServer server;
  server.send(option::list);
  EXPECT_EQ(server.reply().data, text_bytes("disk"));
  EXPECT_EQ(server.reply().data, text_bytes("other"));
  EXPECT_EQ(server.reply().type, option_reply::ack);
  EXPECT_EQ(server.send(option::abort, "ignored"), NbdHandshake::Wants::close);
  EXPECT_EQ(server.reply().type, option_reply::ack);
}

TEST(NbdHandshake, WhatIsRefusedDoesNotEndTheNegotiation) {
  std::string long_name = text_bytes(std::string(4097, 'x'));
  append(long_name, std::uint16_t{0});
  std::string beyond = "\x00\x00\x10\x00 disk";
  beyond[0] = '\0';
  std::string queries = text_bytes("disk");
  append(queries, std::uint32_t{0xffffffff});
  std::string many = text_bytes("disk");
  append(many, std::uint16_t{0xffff});
  const std::tuple<std::uint32_t, std::string, std::uint32_t> cases[] = {
      {option::starttls, "", option_reply::unsupported},
      {4, "", option_reply::unsupported},
      {0xffffffff, "data", option_reply::unsupported},
      {option::list, "data", option_reply::invalid},
      {option::structured_reply, "data", option_reply::invalid},
      {option::go, "", option_reply::invalid},
      {option::go, long_name, option_reply::invalid},
      {option::go, beyond, option_reply::invalid},
      {option::go, many, option_reply::invalid},
      {option::go, info_data("disk") + "x", option_reply::invalid},
      {option::go, info_data("absent"), option_reply::unknown},
      {option::info, info_data(""), option_reply::unknown},
      {option::set_meta_context, queries, option_reply::invalid},
      {option::list, std::string(NbdHandshake::option_data_bytes_max + 1, 'x'), option_reply::too_big},
  };
  NegotiatingServer server;
  server.send(option::structured_reply);
  server.reply();
  for (const auto& [option, data, type] : cases) {
    EXPECT_EQ(server.send(option, data), NbdHandshake::Wants::bytes);
    const Reply reply = server.reply();
    EXPECT_EQ(reply.option, option);
    EXPECT_EQ(reply.type, type) << option;
    EXPECT_TRUE(server.handshake.output().empty());
  }
  EXPECT_EQ(server.send(option::go, info_data("disk")), NbdHandshake::Wants::transmission);
}

TEST(NbdHandshake, ARequiredTlsComesFirst) {
  NegotiatingServer server(fixed_newstyle | no_zeroes, TlsOffer::required);
  for (const std::uint32_t option : {option::list, option::structured_reply, option::info, option::go,
                                     option::list_meta_context, option::set_meta_context, 0xffffU}) {
    EXPECT_EQ(server.send(option), NbdHandshake::Wants::bytes);
    EXPECT_EQ(server.reply().type, option_reply::tls_required) << option;
  }
  server.send(option::starttls, "data");
  EXPECT_EQ(server.reply().type, option_reply::invalid);
  EXPECT_EQ(server.send(option::starttls), NbdHandshake::Wants::tls);
  EXPECT_EQ(server.reply().type, option_reply::ack);
  server.handshake.secured();
  server.send(option::starttls);
  EXPECT_EQ(server.reply().type, option_reply::invalid);
  EXPECT_EQ(server.send(option::go, info_data("disk")), NbdHandshake::Wants::transmission);

  NegotiatingServer old(fixed_newstyle | no_zeroes, TlsOffer::required);
  EXPECT_EQ(old.send(option::export_name, "disk"), NbdHandshake::Wants::close);
  EXPECT_TRUE(old.handshake.output().empty());
  NegotiatingServer other(fixed_newstyle | no_zeroes, TlsOffer::required);
  EXPECT_EQ(other.send(option::abort), NbdHandshake::Wants::close);
}

// Somebody in the network may have sent the options before TLS.
TEST(NbdHandshake, TlsForgetsWhatWasNegotiatedBefore) {
  NegotiatingServer server(fixed_newstyle | no_zeroes, TlsOffer::optional);
  server.send(option::structured_reply);
  server.send(option::set_meta_context, context_data("disk", {"base:allocation"}));
  EXPECT_EQ(server.send(option::starttls), NbdHandshake::Wants::tls);
  server.handshake.secured();
  server.last_type();
  server.send(option::set_meta_context, context_data("disk", {"base:allocation"}));
  EXPECT_EQ(server.reply().type, option_reply::invalid);
  EXPECT_EQ(server.send(option::go, info_data("disk")), NbdHandshake::Wants::transmission);
  EXPECT_FALSE(server.handshake.negotiated().structured_replies);
  EXPECT_FALSE(server.handshake.negotiated().allocation_context);
}

TEST(NbdHandshake, WhatCannotBeAnsweredEndsIt) {
  EXPECT_EQ(NegotiatingServer(4).wants, NbdHandshake::Wants::close) << "an unknown flag";
  NegotiatingServer garbage;
  EXPECT_EQ(garbage.give("GET / HTTP/1.1\r\n\r\n"), NbdHandshake::Wants::close);
  EXPECT_EQ(garbage.handshake.next(as_bytes("x")).wants, NbdHandshake::Wants::close);
  NegotiatingServer long_name;
  EXPECT_EQ(long_name.send(option::export_name, std::string(4097, 'x')), NbdHandshake::Wants::close);
}

TEST(NbdHandshake, TooManyExportsAreNotListed) {
  NegotiatingServer server;
  EXPECT_EQ(server.handshake.next(as_bytes(option_bytes(option::list, ""))).wants, NbdHandshake::Wants::names);
  server.handshake.answer_names(std::vector<std::string>(NbdHandshake::names_listed_max + 1, "x"));
  EXPECT_EQ(server.reply().type, option_reply::too_big);
  EXPECT_TRUE(server.handshake.output().empty());
}

// Cuts at each byte: the pieces make no difference.
TEST(NbdHandshake, PiecesMakeNoDifference) {
  const std::string bytes = option_bytes(option::structured_reply, "") + option_bytes(option::list, "") +
                            option_bytes(99, "data") +
                            option_bytes(option::set_meta_context, context_data("disk", {"base:allocation"})) +
                            option_bytes(option::go, info_data("disk", {information::block_size}));
  std::optional<std::string> expected;
  for (const std::size_t piece : {SIZE_MAX, std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{15}}) {
    NegotiatingServer server;
    EXPECT_EQ(server.give(bytes, piece), NbdHandshake::Wants::transmission) << piece;
    EXPECT_TRUE(server.handshake.negotiated().allocation_context);
    if (!expected) expected = server.handshake.output();
    EXPECT_EQ(server.handshake.output(), *expected) << piece;
  }
}

}  // namespace
}  // namespace hawser::block::nbd
