#include "kv/password.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

#include "hawser/interceptor.h"
#include "hawser/kv.h"
#include "heap/secret_memory.h"

namespace hawser::kv {
namespace {

constexpr std::string_view key = "authorization";
constexpr std::string_view scheme = "Bearer ";

// Why `password` cannot be used; empty if it can. The text does not quote it.
std::string fault_of(std::string_view password) {
  if (password.empty()) return "is empty: write the password into its first line";
  if (password.size() > password_bytes_max) {
    return "has more than " + std::to_string(password_bytes_max) + " bytes, the limit of passwords";
  }
  for (const char c : password) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) {
      return "has several lines or control characters: only one line of text is possible";
    }
  }
  if (password.front() == ' ' || password.back() == ' ') return "begins or ends with a space: remove it";
  return {};
}

class Sender {
 public:
  explicit Sender(std::string_view password) : credential_(scheme) { credential_.append(password); }

  Task<Result<void>> operator()(OutgoingCall& call, Next next) const {
    call.set_metadata(key, credential_.view());
    return next();
  }

 private:
  SecretText credential_;
};

}  // namespace

std::optional<std::string_view> password_of(const MetadataView& metadata) noexcept {
  const std::optional<std::string_view> value = metadata.find(key);
  if (!value || !value->starts_with(scheme)) return std::nullopt;
  return value->substr(scheme.size());
}

Result<std::string> read_password(const std::string& file) {
  const auto failure = [&](const std::string& why) {
    return fail(ErrorCode::invalid_argument, "the password file " + file + " " + why);
  };
  struct Close {
    void operator()(std::FILE* opened) const noexcept { std::fclose(opened); }
  };
  const std::unique_ptr<std::FILE, Close> opened(std::fopen(file.c_str(), "re"));
  if (opened == nullptr) return failure(std::string("cannot be read: ") + std::strerror(errno));
  std::setvbuf(opened.get(), nullptr, _IONBF, 0);  // No copy of the password stays in a buffer.
  // One byte more than the longest password, and the end of its line.
  std::string text(password_bytes_max + 3, '\0');
  const std::size_t size = std::fread(text.data(), 1, text.size(), opened.get());
  if (std::ferror(opened.get()) != 0) return failure(std::string("cannot be read: ") + std::strerror(errno));
  text.resize(size);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  const std::string fault = fault_of(text);
  if (fault.empty()) return text;
  wipe(text);
  return failure(fault);
}

std::shared_ptr<detail::Interceptor<OutgoingCall>> send_password(std::string password) {
  const std::string fault = fault_of(password);
  if (!fault.empty()) throw std::invalid_argument("hawser: the password " + fault);
  Sender sender(password);
  wipe(password);
  return client_interceptor(std::move(sender));
}

}  // namespace hawser::kv
