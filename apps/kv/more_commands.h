#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>

#include "kv/commands.h"

namespace hawser::kv {

constexpr std::string_view not_integer = "ERR value is not an integer or out of range";
constexpr std::string_view syntax_error = "ERR syntax error";
constexpr std::string_view no_memory = "OOM command not allowed when used memory > 'maxmemory'.";
constexpr std::string_view too_long = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

// False if the key is too long; the reply has been written then.
bool check_key(Execution& e, std::string_view key);

inline Key key_of(const Execution& e, std::string_view bytes) { return e.site.store().key(bytes); }
// The shard of a key of a command with several keys.
inline Shard& shard_of(const Execution& e, const Key& key) {
  Store& store = e.site.store();
  return store.site(store.shard_of(key.hash)).shard();
}
// Gives the value of the command's key another length, as Shard::resize(). `present`: its entry; null: it has none.
Entry* resize_value(Execution& e, Entry* present, std::size_t value_bytes);

// Functions of commands about several keys.
void run_mset(Execution& e);
void run_msetnx(Execution& e);
void run_rename(Execution& e);
void run_renamenx(Execution& e);
void run_copy(Execution& e);
void run_watch_keys(Execution& e);
void run_randomkey(Execution& e);
void run_object(Execution& e);
// Functions of commands that look at many keys.
void run_keys(Execution& e);
void run_scan(Execution& e);
// Functions of commands about bits.
void run_setbit(Execution& e);
void run_getbit(Execution& e);
void run_bitcount(Execution& e);
void run_bitpos(Execution& e);
void run_bitop(Execution& e);

}  // namespace hawser::kv
