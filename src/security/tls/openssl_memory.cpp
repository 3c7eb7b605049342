#include <openssl/crypto.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "hawser/tls.h"
#include "heap/secret_memory.h"
#include "security/tls/openssl.h"

// The memory of OpenSSL. docs/decisions/0057-secrets-are-in-memory-that-is-not-dumped.md.
namespace hawser::security::tls {
namespace {

// Blocks that OpenSSL allocates from now on are in secret memory.
constinit std::atomic<bool> excluded{false};
// OpenSSL has allocated blocks after its preparation and before the exclusion.
constinit std::atomic<bool> allocated{false};
constinit std::atomic<bool> installed{false};

// The last two parameters are a place in the sources of OpenSSL.
void* allocate(std::size_t bytes, const char*, int) {
  if (bytes == 0) return nullptr;
  if (excluded.load(std::memory_order_acquire)) return SecretMemory::allocate(bytes);
  if (!allocated.load(std::memory_order_relaxed)) allocated.store(true, std::memory_order_relaxed);
  return std::malloc(bytes);
}

void release(void* block, const char*, int) {
  if (SecretMemory::contains(block)) return SecretMemory::deallocate_buffer(block);
  std::free(block);
}

void* reallocate(void* block, std::size_t bytes, const char* file, int line) {
  if (block == nullptr) return allocate(bytes, file, line);
  if (bytes == 0) {
    release(block, file, line);
    return nullptr;
  }
  const bool secret = SecretMemory::contains(block);
  if (!secret && !excluded.load(std::memory_order_acquire)) return std::realloc(block, bytes);
  const std::size_t usable = secret ? SecretMemory::size_of(block) : usable_bytes_of_heap(block);
  if (secret && bytes <= usable && bytes > usable / 2) return block;
  void* const made = allocate(bytes, file, line);
  if (made == nullptr) return nullptr;
  std::memcpy(made, block, std::min(usable, bytes));
  release(block, file, line);
  return made;
}

}  // namespace

// OpenSSL takes other functions only before it has allocated anything, and OPENSSL_INIT_NO_ATEXIT must be the first use
// of OpenSSL. So both happen before main(). These functions use the common heap until the exclusion.
bool prepare_openssl() noexcept {
  const bool first = CRYPTO_set_mem_functions(allocate, reallocate, release) == 1;
  const bool done = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1;
  installed.store(first, std::memory_order_relaxed);
  allocated.store(false, std::memory_order_relaxed);
  return done;
}

}  // namespace hawser::security::tls

namespace hawser {

Result<void> exclude_tls_memory_from_core_dumps() {
  // Less would end handshakes of a busy server.
  constexpr std::size_t bytes_min = std::size_t{1} << 30;
  if (security::tls::excluded.load(std::memory_order_acquire)) return {};
  const auto refused = [](const std::string& why) {
    return fail(ErrorCode::invalid_argument, "the memory of OpenSSL stays in core dumps: " + why);
  };
  if (!security::tls::openssl_outlives_main || !security::tls::installed.load(std::memory_order_relaxed)) {
    return refused(
        "another part of the program used OpenSSL before main(), or has set its memory functions "
        "(CRYPTO_set_mem_functions): remove that, or switch core dumps off");
  }
  if (security::tls::allocated.load(std::memory_order_relaxed)) {
    return refused(
        "OpenSSL has allocated memory already: call exclude_tls_memory_from_core_dumps() at the start of main(), "
        "before anything uses OpenSSL");
  }
  if (Result<void> reserved = SecretMemory::reserve(bytes_min); !reserved) {
    reserved.error().text = "the memory of OpenSSL stays in core dumps: " + reserved.error().text;
    return reserved;
  }
  security::tls::excluded.store(true, std::memory_order_release);
  return {};
}

}  // namespace hawser
