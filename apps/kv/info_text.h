#pragma once

#include <string>
#include <string_view>

#include "kv/commands.h"
#include "kv/password_gate.h"
#include "kv/store.h"

namespace hawser::kv {

// The version that clients see. They decide by it what they may send; redis-py uses its cache from 7.4 on.
inline constexpr std::string_view redis_version = "7.4.0";

// The sections of INFO that the arguments behind the name request: all without arguments. `gate` may be null.
std::string info_text(Store& store, const PasswordGate* gate, Arguments arguments);

}  // namespace hawser::kv
