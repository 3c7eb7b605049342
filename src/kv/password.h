#pragma once

#include <optional>
#include <string_view>

#include "hawser/metadata.h"

namespace hawser::kv {

// The password that a call carries; empty if it carries none. Valid as long as the metadata.
std::optional<std::string_view> password_of(const MetadataView& metadata) noexcept;

}  // namespace hawser::kv
