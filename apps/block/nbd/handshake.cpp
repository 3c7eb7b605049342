#include "block/nbd/handshake.h"

#include <algorithm>
#include <optional>

#include "block/nbd/protocol.h"

namespace hawser::block::nbd {
namespace {

constexpr std::size_t option_header_bytes = 16;
constexpr std::size_t zeroes_bytes = 124;

// Takes numbers and strings from the front of an option's data.
class OptionReader {
 public:
  explicit OptionReader(Bytes data) noexcept : data_(data) {}
  template <class Number>
  std::optional<Number> number() noexcept {
    if (data_.size() < sizeof(Number)) return std::nullopt;
    const Number value = load<Number>(data_);
    data_ = data_.subspan(sizeof(Number));
    return value;
  }
  // A string behind its length.
  std::optional<std::string_view> text() noexcept {
    const auto size = number<std::uint32_t>();
    if (!size || *size > data_.size() || *size > string_bytes_max) return std::nullopt;
    const std::string_view value = as_text(data_.first(*size));
    data_ = data_.subspan(*size);
    return value;
  }
  bool empty() const noexcept { return data_.empty(); }

 private:
  Bytes data_;
};

}  // namespace

NbdHandshake::NbdHandshake(TlsOffer tls) : tls_(tls) {
  append(output_, greeting_magic);
  append(output_, option_magic);
  append(output_, static_cast<std::uint16_t>(fixed_newstyle | no_zeroes));
}

NbdHandshake::Wants NbdHandshake::end(Wants wants) noexcept {
  state_ = State::ended;
  return wants;
}

NbdHandshake::Step NbdHandshake::take_flags(Bytes in) {
  if (in.size() < sizeof(std::uint32_t)) return {};
  const auto flags = load<std::uint32_t>(in);
  // The specification demands an end for flags that are unknown, and the options need the fixed newstyle.
  if ((flags & ~(fixed_newstyle | no_zeroes)) != 0) return {end(Wants::close), sizeof(flags)};
  no_zeroes_ = (flags & no_zeroes) != 0;
  state_ = State::option;
  return {Wants::bytes, sizeof(flags)};
}

NbdHandshake::Step NbdHandshake::next(Bytes in) {
  if (state_ == State::ended) return {Wants::close, 0};
  if (state_ == State::client_flags) return take_flags(in);
  if (state_ == State::skip) {
    const std::size_t part = std::min<std::uint64_t>(in.size(), skip_bytes_);
    skip_bytes_ -= part;
    if (skip_bytes_ == 0) state_ = State::option;
    return {Wants::bytes, part};
  }
  if (in.size() < option_header_bytes) return {};
  if (load<std::uint64_t>(in) != option_magic) return {end(Wants::close), 0};
  option_ = load<std::uint32_t>(in.subspan(8));
  const auto size = load<std::uint32_t>(in.subspan(12));
  if (option_ == option::export_name && size > string_bytes_max) return {end(Wants::close), 0};
  if (size > option_data_bytes_max) {
    refuse(option_reply::too_big, "an option of " + std::to_string(size) + " bytes exceeds the limit of " +
                                      std::to_string(option_data_bytes_max) + " bytes");
    state_ = State::skip;
    skip_bytes_ = size;
    return {Wants::bytes, option_header_bytes};
  }
  if (in.size() - option_header_bytes < size) return {};
  return {take_option(in.subspan(option_header_bytes, size)), option_header_bytes + size};
}

NbdHandshake::Wants NbdHandshake::take_starttls(Bytes data) {
  if (!data.empty()) return refuse(option_reply::invalid, "STARTTLS has no data");
  if (secured_) return refuse(option_reply::invalid, "TLS has begun already");
  if (tls_ == TlsOffer::none) {
    return refuse(option_reply::unsupported, "this server has no certificate for TLS: use a Unix socket or a tunnel");
  }
  reply(option_reply::ack);
  state_ = State::answer;
  return Wants::tls;
}

void NbdHandshake::secured() {
  secured_ = true;
  state_ = State::option;
  negotiated_ = {};
  context_selected_ = false;
  context_export_.clear();
}

NbdHandshake::Wants NbdHandshake::refuse_plain() {
  if (option_ == option::export_name) return end(Wants::close);  // It has no reply for errors.
  return refuse(option_reply::tls_required, "this server requires TLS: begin with STARTTLS");
}

NbdHandshake::Wants NbdHandshake::take_option(Bytes data) {
  const bool plain = tls_ == TlsOffer::required && !secured_;
  if (plain && option_ != option::starttls && option_ != option::abort) return refuse_plain();
  switch (option_) {
    case option::export_name: return ask(as_text(data));
    case option::abort: reply(option_reply::ack); return end(Wants::close);
    case option::list:
      if (!data.empty()) return refuse(option_reply::invalid, "LIST has no data");
      state_ = State::answer;
      return Wants::names;
    case option::starttls: return take_starttls(data);
    case option::info:
    case option::go: return take_info(data);
    case option::structured_reply:
      if (!data.empty()) return refuse(option_reply::invalid, "STRUCTURED_REPLY has no data");
      negotiated_.structured_replies = true;
      reply(option_reply::ack);
      return Wants::bytes;
    case option::list_meta_context:
    case option::set_meta_context: return take_meta_context(data);
    default: return refuse(option_reply::unsupported, "unknown option " + std::to_string(option_));
  }
}

NbdHandshake::Wants NbdHandshake::ask(std::string_view name) {
  name_ = name;
  state_ = State::answer;
  return Wants::device;
}

NbdHandshake::Wants NbdHandshake::take_info(Bytes data) {
  OptionReader reader(data);
  const auto name = reader.text();
  const auto count = reader.number<std::uint16_t>();
  if (!name || !count) return refuse(option_reply::invalid, "the name exceeds the option or 4096 bytes");
  informations_.clear();
  for (unsigned i = 0; i < *count; ++i) {
    const auto information = reader.number<std::uint16_t>();
    if (!information) return refuse(option_reply::invalid, "the information requests exceed the option");
    // Only the known ones are kept, so that the number of replies does not depend on the client.
    if (std::ranges::find(informations_, *information) == informations_.end() &&
        (*information == information::name || *information == information::block_size)) {
      informations_.push_back(*information);
    }
  }
  if (!reader.empty()) return refuse(option_reply::invalid, "there are bytes behind the information requests");
  return ask(*name);
}

NbdHandshake::Wants NbdHandshake::take_meta_context(Bytes data) {
  const bool set = option_ == option::set_meta_context;
  if (set) context_selected_ = false;
  if (!negotiated_.structured_replies) {
    return refuse(option_reply::invalid, "metadata contexts need STRUCTURED_REPLY before");
  }
  OptionReader reader(data);
  const auto name = reader.text();
  const auto count = reader.number<std::uint32_t>();
  if (!name || !count) return refuse(option_reply::invalid, "the name exceeds the option or 4096 bytes");
  context_matches_ = !set && *count == 0;
  for (std::uint32_t i = 0; i < *count; ++i) {
    const auto query = reader.text();
    if (!query) return refuse(option_reply::invalid, "a query exceeds the option or 4096 bytes");
    if (*query == allocation_context || (!set && *query == "base:")) context_matches_ = true;
  }
  if (!reader.empty()) return refuse(option_reply::invalid, "there are bytes behind the queries");
  return ask(*name);
}

void NbdHandshake::answer_names(const Result<std::vector<std::string>>& names) {
  state_ = State::option;
  if (!names) {
    refuse(option_reply::platform, names.error().text);
    return;
  }
  if (names->size() > names_listed_max) {
    refuse(option_reply::too_big, std::to_string(names->size()) + " volumes exceed the limit of a list, " +
                                      std::to_string(names_listed_max) + ": ask for one by its name");
    return;
  }
  for (const std::string& name : *names) {
    std::string data;
    append(data, static_cast<std::uint32_t>(name.size()));
    reply(option_reply::server, data + name);
  }
  reply(option_reply::ack);
}

NbdHandshake::Wants NbdHandshake::answer_device(const Result<ExportInfo>& info) {
  state_ = State::option;
  if (option_ == option::export_name) {
    if (!info) return end(Wants::close);
    negotiated_.allocation_context = context_selected_ && context_export_ == name_;
    append(output_, info->size);
    append(output_, flags_of(*info));
    if (!no_zeroes_) output_.append(zeroes_bytes, '\0');
    return end(Wants::transmission);
  }
  if (!info) return refuse(option_reply::unknown, info.error().text);
  if (option_ == option::list_meta_context || option_ == option::set_meta_context) {
    reply_contexts();
    return Wants::bytes;
  }
  reply_information(*info);
  if (option_ == option::info) return Wants::bytes;
  negotiated_.allocation_context = context_selected_ && context_export_ == name_;
  return end(Wants::transmission);
}

void NbdHandshake::reply_contexts() {
  if (context_matches_) {
    const bool set = option_ == option::set_meta_context;
    std::string data;
    append(data, set ? allocation_context_id : std::uint32_t{0});
    data += allocation_context;
    reply(option_reply::meta_context, data);
    if (set) {
      context_selected_ = true;
      context_export_ = name_;
    }
  }
  reply(option_reply::ack);
}

void NbdHandshake::reply_information(const ExportInfo& info) {
  std::string data;
  append(data, information::export_);
  append(data, info.size);
  append(data, flags_of(info));
  reply(option_reply::info, data);
  for (const std::uint16_t requested : informations_) {
    data.clear();
    append(data, requested);
    if (requested == information::name) {
      data += info.name;
    } else {
      append(data, std::uint32_t{1});
      append(data, block_bytes_preferred);
      append(data, payload_bytes_max);
    }
    reply(option_reply::info, data);
  }
  reply(option_reply::ack);
}

std::uint16_t NbdHandshake::flags_of(const ExportInfo& info) const noexcept {
  unsigned flags = transmission::has_flags | transmission::flush | transmission::fua | transmission::multi_connection;
  if (info.read_only) {
    flags |= transmission::read_only;
  } else {
    flags |= transmission::trim | transmission::write_zeroes | transmission::fast_zero;
  }
  if (negotiated_.structured_replies) flags |= transmission::dont_fragment;
  return static_cast<std::uint16_t>(flags);
}

void NbdHandshake::reply(std::uint32_t type, std::string_view data) {
  append(output_, option_reply_magic);
  append(output_, option_);
  append(output_, type);
  append(output_, static_cast<std::uint32_t>(data.size()));
  output_ += data;
}

NbdHandshake::Wants NbdHandshake::refuse(std::uint32_t type, std::string_view text) {
  reply(type, text.substr(0, error_text_bytes_max));
  return Wants::bytes;
}

}  // namespace hawser::block::nbd
