#pragma once

#include <cstdint>
#include <memory>
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

// The rules of a file: which client may do what with which volumes (docs/block.md, "Rules"). Any thread. Copies share
// the rules, also those of a later reload().
class VolumeRules {
 public:
  // Everybody may do everything.
  VolumeRules();
  // The rules of the lines of `text`. Fails with the number of a line that is wrong. Without a line nobody may do
  // anything.
  static Result<VolumeRules> parse(std::string_view text);
  static Result<VolumeRules> load(const std::string& file);
  // As load(); an empty `file` has no rules, so that everybody may do everything.
  static Result<VolumeRules> load_if_given(const std::string& file);

  // From now on, these are the rules of the file. After an error they stay as they are.
  Result<void> reload(const std::string& file);

  bool allow(const Identity& who, VolumeAccess access, std::string_view volume) const;
  // Fails with permission_denied, or with unauthenticated if `who` has proved nothing. The error does not depend on
  // whether the volume exists.
  Result<void> check(const Identity& who, VolumeAccess access, std::string_view volume) const;

 private:
  struct Current;
  static Result<void> add(Authorization& rules, std::string_view line);
  Authorization current() const;

  const std::shared_ptr<Current> current_;
};

}  // namespace hawser::block
