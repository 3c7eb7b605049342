#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "hawser/authorization.h"
#include "hawser/error.h"
#include "hawser/identity.h"

namespace hawser::block {

// An access of a client to a volume. Each one includes those before it.
enum class VolumeAccess : std::uint8_t {
  read,    // Also its name and its state.
  write,   // Also discards and zeros.
  manage,  // Create, resize, scrub, remove.
};

// The rules of a file: which client may do what with which volumes (docs/block.md, "Rules"). Any thread. A copy shares
// its rules.
class VolumeRules {
 public:
  // Everybody may do everything.
  VolumeRules() = default;
  // The rules of the lines of `text`. Fails with the number of a line that is wrong. Without a line nobody may do
  // anything.
  static Result<VolumeRules> parse(std::string_view text);
  static Result<VolumeRules> load(const std::string& file);

  bool allow(const Identity& who, VolumeAccess access, std::string_view volume) const;
  // Fails with permission_denied, or with unauthenticated if `who` has proved nothing. The error does not depend on
  // whether the volume exists.
  Result<void> check(const Identity& who, VolumeAccess access, std::string_view volume) const;

 private:
  Result<void> add(std::string_view line);

  // Its methods are "read/NAME", "write/NAME" and "manage/NAME".
  Authorization rules_;
};

}  // namespace hawser::block
