#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "compress/deflate.h"

// Arbitrary bytes as a gzip member and as a stream of zlib, as a text that is compressed in pieces, and as changes of
// its compressed bytes. The pieces must make no difference, and the output must keep its limit.
// Input: u8 format and options | u8 bytes of a piece | the bytes.
namespace hawser::compress {
namespace {

constexpr std::size_t bytes_max = std::size_t{1} << 16;

void expect(bool condition) {
  if (!condition) std::abort();
}

Unpacked unpack(Format format, Bytes packed, std::size_t limit) {
  detail::ReceiveCharge none;
  return inflate_all(format, packed, GrowingOutput(packed.size(), limit, nullptr, none));
}

// The bytes up to where they end or are malformed; nothing if there are more than `bytes_max`.
std::optional<std::string> unpack_pieces(Inflater& inflater, Bytes packed, std::size_t piece, Inflater::Step& step) {
  std::string out;
  std::string room(piece, '\0');
  for (;;) {
    const Bytes in = packed.first(std::min(piece, packed.size()));
    step = inflater.step(in, std::as_writable_bytes(std::span(room)));
    expect(step.read <= in.size() && step.written <= room.size());
    packed = packed.subspan(step.read);
    out.append(room, 0, step.written);
    if (out.size() > bytes_max) return std::nullopt;
    const bool needs_input = packed.empty() && step.written < room.size();
    if (step.status == Inflater::Status::end && !packed.empty()) step.status = Inflater::Status::malformed;
    if (step.status != Inflater::Status::more || needs_input) return out;
    expect(step.read != 0 || step.written != 0);
  }
}

void expect_unpacked(Format format, Bytes packed, std::size_t piece) {
  const Unpacked all = unpack(format, packed, bytes_max);
  Inflater inflater(format);
  Inflater::Step last;
  const std::optional<std::string> pieces = unpack_pieces(inflater, packed, piece, last);
  const bool whole = pieces && last.status == Inflater::Status::end;
  expect(whole == (all.problem == Problem::none));
  if (!whole) return;
  expect(all.data.text() == *pieces);
  expect(unpack(format, packed, pieces->size()).problem == Problem::none);
  expect(pieces->empty() || unpack(format, packed, pieces->size() - 1).problem == Problem::too_large);
  expect(unpack(format, packed.first(packed.size() - 1), bytes_max).problem == Problem::malformed);
  // The inflater can be used again.
  inflater.restart();
  expect(unpack_pieces(inflater, packed, piece, last) == *pieces && last.status == Inflater::Status::end);
}

std::string pack(const DeflaterOptions& options, std::string_view text, std::size_t piece) {
  Deflater deflater(options);
  Inflater inflater(options.format);
  std::string packed;
  std::size_t shown = 0;
  std::string back;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    const std::string_view part = text.substr(at, piece);
    const bool flushes = (static_cast<unsigned char>(part[0]) & 1) != 0;
    deflater.add(as_bytes(part), flushes ? Deflater::Flush::part : Deflater::Flush::none, packed);
    if (!flushes) continue;
    // A receiver has everything up to here.
    Inflater::Step step;
    const auto got = unpack_pieces(inflater, as_bytes(std::string_view(packed).substr(shown)), 1000, step);
    shown = packed.size();
    expect(got && step.status == Inflater::Status::more);
    back += *got;
    expect(back == text.substr(0, at + part.size()));
  }
  deflater.add({}, Deflater::Flush::end, packed);
  return packed;
}

}  // namespace
}  // namespace hawser::compress

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hawser;
  using namespace hawser::compress;
  if (size < 2) return 0;
  const std::uint8_t choice = data[0];
  const Format format = (choice & 1) != 0 ? Format::gzip : Format::zlib;
  const std::size_t piece = data[1] + std::size_t{1};
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, std::min(size - 2, bytes_max));
  expect_unpacked(format, as_bytes(text), piece);

  const DeflaterOptions options{.format = format,
                                .fast = (choice & 2) != 0,
                                .window_bits = 9 + (choice >> 2) % 7,
                                .memory_level = 1 + (choice >> 4) % 9};
  std::string packed = pack(options, text, piece);
  expect(unpack(format, as_bytes(packed), text.size()).data.text() == text);
  const Buffer at_once = Deflater(options).all(as_bytes(text));
  expect(unpack(format, at_once.bytes(), text.size()).data.text() == text);

  if (text.size() >= 2) packed[static_cast<unsigned char>(text[0]) % packed.size()] ^= text[1];
  expect_unpacked(format, as_bytes(packed), piece);
  return 0;
}
