#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "block/nbd/exports.h"
#include "hawser/bytes.h"
#include "hawser/error.h"

namespace hawser::block::nbd {

// Properties of the connection on which the peers have agreed.
struct Negotiated {
  bool structured_replies = false;
  bool allocation_context = false;
};

// Whether TLS can begin within a negotiation (STARTTLS).
enum class TlsOffer : std::uint8_t {
  none,
  optional,
  required,  // Before it, no other options are accepted.
};

// The server's side of a fixed newstyle negotiation. It does no I/O: the caller sends output(), gives it the bytes of
// the client, and answers its questions.
class NbdHandshake {
 public:
  // Options with more data are refused. The caller's memory for received bytes has option_bytes_max at least.
  static constexpr std::size_t option_data_bytes_max = 64 * 1024;
  static constexpr std::size_t option_bytes_max = option_data_bytes_max + 16;
  // LIST is refused if there are more exports.
  static constexpr std::size_t names_listed_max = 16 * 1024;

  enum class Wants : std::uint8_t {
    bytes,         // More bytes of the client than were given.
    names,         // answer_names().
    device,        // answer_device(), for the export name().
    tls,           // secured() when the output has been sent. What the client sent behind the option is TLS.
    transmission,  // The negotiation has ended: requests follow.
    close,         // The connection ends when the output has been sent.
  };
  struct Step {
    Wants wants = Wants::bytes;
    std::size_t consumed = 0;  // The number of the given bytes that are used up.
  };

  explicit NbdHandshake(TlsOffer tls = TlsOffer::none);

  // Takes bytes of the client: at most one option, and nothing before a complete one.
  Step next(Bytes in);
  void answer_names(const Result<std::vector<std::string>>& names);
  // The export name(), or why it cannot be used. Returns what next() would.
  Wants answer_device(const Result<ExportInfo>& info);
  // Bytes are within TLS from now on. What the client has negotiated before is forgotten.
  void secured();

  // Bytes to send. The caller removes what it has sent.
  std::string& output() noexcept { return output_; }
  // The export of the last question, and of the transmission.
  const std::string& name() const noexcept { return name_; }
  const Negotiated& negotiated() const noexcept { return negotiated_; }

 private:
  enum class State : std::uint8_t { client_flags, option, skip, answer, ended };

  Step take_flags(Bytes in);
  Wants take_option(Bytes data);
  Wants take_starttls(Bytes data);
  Wants refuse_plain();
  Wants take_info(Bytes data);
  Wants take_meta_context(Bytes data);
  Wants ask(std::string_view name);
  Wants end(Wants wants) noexcept;

  void reply(std::uint32_t type, std::string_view data = {});
  Wants refuse(std::uint32_t type, std::string_view text);
  std::uint16_t flags_of(const ExportInfo& info) const noexcept;
  void reply_information(const ExportInfo& info);
  void reply_contexts();

  TlsOffer tls_;
  bool secured_ = false;
  State state_ = State::client_flags;
  std::uint32_t option_ = 0;
  std::uint64_t skip_bytes_ = 0;
  bool no_zeroes_ = false;
  std::string name_;
  std::vector<std::uint16_t> informations_;  // Requested by INFO and GO.
  bool context_matches_ = false;             // A query of the option selects base:allocation.
  std::string context_export_;               // The export for which base:allocation was selected last.
  bool context_selected_ = false;
  Negotiated negotiated_;
  std::string output_;
};

}  // namespace hawser::block::nbd
