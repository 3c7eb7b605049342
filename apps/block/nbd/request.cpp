#include "block/nbd/request.h"

#include "block/nbd/protocol.h"

namespace hawser::block::nbd {
namespace {

bool writes(std::uint16_t type) noexcept {
  return type == command::write || type == command::trim || type == command::write_zeroes;
}

// The flags that a command may have. Clients are known to set FUA on any command.
std::uint16_t flags_of(std::uint16_t type, const Negotiated& negotiated) noexcept {
  unsigned flags = command_flag::fua;
  if (type == command::write_zeroes) flags |= command_flag::no_hole | command_flag::fast_zero;
  if (type == command::read && negotiated.structured_replies) flags |= command_flag::dont_fragment;
  if (type == command::block_status) flags |= command_flag::one_extent;
  return static_cast<std::uint16_t>(flags);
}

Refusal check_range(const NbdRequest& request, const ExportInfo& info) noexcept {
  if (request.length == 0) return {status::invalid, "a request of 0 bytes"};
  if (request.offset > info.size || request.length > info.size - request.offset) {
    return {writes(request.type) && request.type != command::trim ? status::no_space : status::invalid,
            "the range exceeds the export"};
  }
  return {};
}

}  // namespace

RequestReader::Step RequestReader::next(Bytes in) noexcept {
  if (in.size() < header_bytes) {
    // A wrong beginning is found before the rest has arrived.
    if (in.size() >= sizeof(request_magic) && load<std::uint32_t>(in) != request_magic) return {Event::invalid};
    return {};
  }
  if (load<std::uint32_t>(in) != request_magic) return {Event::invalid};
  const NbdRequest request{.flags = load<std::uint16_t>(in.subspan(4)),
                           .type = load<std::uint16_t>(in.subspan(6)),
                           .cookie = load<std::uint64_t>(in.subspan(8)),
                           .offset = load<std::uint64_t>(in.subspan(16)),
                           .length = load<std::uint32_t>(in.subspan(24))};
  data_bytes_ = request.type == command::write ? request.length : 0;
  return {Event::request, header_bytes, request};
}

Refusal check(const NbdRequest& request, const ExportInfo& info, const Negotiated& negotiated) noexcept {
  const std::uint16_t type = request.type;
  const bool known = type == command::read || type == command::flush || writes(type) || type == command::block_status;
  if (!known) return {status::invalid, "an unknown command"};
  if ((request.flags & ~flags_of(type, negotiated)) != 0) return {status::invalid, "a flag that the command has not"};
  if (info.read_only && writes(type)) return {status::not_permitted, "the export is read-only"};
  if (type == command::flush) {
    if (request.offset != 0 || request.length != 0) return {status::invalid, "a flush has no range"};
    return {};
  }
  if (type == command::block_status && !negotiated.allocation_context) {
    return {status::invalid, "no metadata context was selected"};
  }
  if ((type == command::read || type == command::write) && request.length > payload_bytes_max) {
    return {type == command::read ? status::overflow : status::invalid, "the request exceeds 32 MiB"};
  }
  return check_range(request, info);
}

}  // namespace hawser::block::nbd
