#include "security/tls/pkcs11/module.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

#include "base/at_fork.h"
#include "base/descriptor.h"
#include "base/escaped_text.h"
#include "hawser/loop.h"

namespace hawser::security::tls {
namespace {

constexpr const char* module_of_p11_kit = "p11-kit-proxy.so";
constexpr CK_ULONG slots_max = 1024;

// Uses of the functions of all modules.
struct Uses {
  static constexpr std::chrono::seconds exit_wait_max{2};

  Uses() {
    at_fork([] { of_process().mutex.lock(); }, [] { of_process().mutex.unlock(); },
            [] {
              of_process().count = 0;  // The threads are the parent's.
              of_process().mutex.unlock();
            });
  }
  // Never destroyed: threads may use it until the process ends.
  static Uses& of_process() {
    static Uses& uses = *new Uses;
    return uses;
  }
  void end() noexcept {
    std::unique_lock lock(mutex);
    exiting = true;
    idle.wait_for(lock, exit_wait_max, [this] { return count == 0; });
  }

  std::mutex mutex;  // Guards the following members.
  std::condition_variable idle;
  std::size_t count = 0;
  bool exiting = false;
};

// A text of fixed length, filled with spaces.
std::string unpadded(const unsigned char* bytes, std::size_t size) {
  std::string text(reinterpret_cast<const char*>(bytes), size);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\0')) text.pop_back();
  return text;
}

bool matches(const std::string& wanted, const std::string& text) { return wanted.empty() || wanted == text; }

std::string in_quotes(std::string_view text) {
  std::string shown = "'";
  append_escaped(shown, text, label_bytes_max);
  return shown + "'";
}

}  // namespace

std::string pkcs11_text(CK_RV error) {
  constexpr std::array<std::pair<CK_RV, const char*>, 24> names = {{
      {CKR_HOST_MEMORY, "CKR_HOST_MEMORY"},
      {CKR_GENERAL_ERROR, "CKR_GENERAL_ERROR"},
      {CKR_FUNCTION_FAILED, "CKR_FUNCTION_FAILED"},
      {CKR_ARGUMENTS_BAD, "CKR_ARGUMENTS_BAD"},
      {CKR_CANT_LOCK, "CKR_CANT_LOCK"},
      {CKR_DEVICE_ERROR, "CKR_DEVICE_ERROR"},
      {CKR_DEVICE_MEMORY, "CKR_DEVICE_MEMORY"},
      {CKR_DEVICE_REMOVED, "CKR_DEVICE_REMOVED"},
      {CKR_FUNCTION_NOT_SUPPORTED, "CKR_FUNCTION_NOT_SUPPORTED"},
      {CKR_KEY_HANDLE_INVALID, "CKR_KEY_HANDLE_INVALID"},
      {CKR_KEY_TYPE_INCONSISTENT, "CKR_KEY_TYPE_INCONSISTENT"},
      {CKR_KEY_FUNCTION_NOT_PERMITTED, "CKR_KEY_FUNCTION_NOT_PERMITTED"},
      {CKR_MECHANISM_INVALID, "CKR_MECHANISM_INVALID"},
      {CKR_MECHANISM_PARAM_INVALID, "CKR_MECHANISM_PARAM_INVALID"},
      {CKR_OBJECT_HANDLE_INVALID, "CKR_OBJECT_HANDLE_INVALID"},
      {CKR_PIN_INCORRECT, "CKR_PIN_INCORRECT"},
      {CKR_PIN_LEN_RANGE, "CKR_PIN_LEN_RANGE"},
      {CKR_PIN_LOCKED, "CKR_PIN_LOCKED"},
      {CKR_SESSION_CLOSED, "CKR_SESSION_CLOSED"},
      {CKR_SESSION_COUNT, "CKR_SESSION_COUNT"},
      {CKR_SESSION_HANDLE_INVALID, "CKR_SESSION_HANDLE_INVALID"},
      {CKR_TOKEN_NOT_PRESENT, "CKR_TOKEN_NOT_PRESENT"},
      {CKR_USER_NOT_LOGGED_IN, "CKR_USER_NOT_LOGGED_IN"},
      {CKR_CRYPTOKI_NOT_INITIALIZED, "CKR_CRYPTOKI_NOT_INITIALIZED"},
  }};
  constexpr std::string_view digits = "0123456789abcdef";
  std::string number;
  for (CK_RV rest = error; rest != 0 || number.empty(); rest >>= 4) number.insert(number.begin(), digits[rest & 15]);
  for (const auto& [value, name] : names) {
    if (value == error) return std::string(name) + " (0x" + number + ")";
  }
  return "error 0x" + number;
}

Pkcs11Module::Use::Use() noexcept {
  Uses& uses = Uses::of_process();
  const std::lock_guard lock(uses.mutex);
  begun_ = !uses.exiting;
  if (begun_) ++uses.count;
}

Pkcs11Module::Use::~Use() {
  if (!begun_) return;
  Uses& uses = Uses::of_process();
  const std::lock_guard lock(uses.mutex);
  if (uses.count != 0 && --uses.count == 0) uses.idle.notify_all();
}

void Pkcs11Module::close(CK_SESSION_HANDLE session) noexcept {
  const Use use;
  if (!use) return;
  if (Loop::current() != nullptr) {
    const std::lock_guard lock(noted_mutex_);
    try {
      noted_.push_back(session);
      return;
    } catch (const std::bad_alloc&) {
      // Without memory it is closed here.
    }
  }
  functions_->C_CloseSession(session);
}

void Pkcs11Module::close_noted() noexcept {
  if (Loop::current() != nullptr) return;
  std::vector<CK_SESSION_HANDLE> noted;
  {
    const std::lock_guard lock(noted_mutex_);
    noted.swap(noted_);
  }
  for (const CK_SESSION_HANDLE session : noted) close(session);
}

CK_RV Pkcs11Module::initialize() const noexcept {
  CK_C_INITIALIZE_ARGS arguments{};
  arguments.flags = CKF_OS_LOCKING_OK;
  open_standard_descriptors();  // A module may make descriptors of its own.
  const CK_RV result = functions_->C_Initialize(&arguments);
  return result == CKR_CRYPTOKI_ALREADY_INITIALIZED ? CKR_OK : result;
}

Result<Pkcs11Module*> Pkcs11Module::load(const std::string& given) {
  static std::mutex mutex;
  // Never destroyed: keys may be members of static objects.
  static auto& loaded = *new std::map<std::string, std::unique_ptr<Pkcs11Module>>;
  const std::string path = given.empty() ? module_of_p11_kit : given;
  const std::lock_guard lock(mutex);
  if (const auto found = loaded.find(path); found != loaded.end()) return found->second.get();
  const auto failed = [&path](const std::string& what) {
    return fail(ErrorCode::invalid_argument, "the PKCS #11 module " + path + " " + what);
  };
  // Never unloaded. Threads of a module could not be stopped.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return failed("cannot be loaded (" + std::string(reason != nullptr ? reason : "no reason is known") + "): " +
                  (given.empty()
                       ? "install p11-kit, or give the file of a module with module-path in the URI of the key"
                       : "install it, or correct module-path in the URI of the key"));
  }
  const auto list = reinterpret_cast<CK_C_GetFunctionList>(dlsym(library, "C_GetFunctionList"));
  CK_FUNCTION_LIST* functions = nullptr;
  if (list == nullptr || list(&functions) != CKR_OK || functions == nullptr) {
    dlclose(library);
    return failed("has no C_GetFunctionList: module-path in the URI of the key must name a PKCS #11 module");
  }
  std::unique_ptr<Pkcs11Module> made(new Pkcs11Module(path, functions));
  if (const CK_RV error = made->initialize(); error != CKR_OK) {
    dlclose(library);
    return failed("cannot be initialised: " + pkcs11_text(error) + ": see the documentation of the module");
  }
  // Registered after the module's own functions, so that it is called before them.
  static_cast<void>(std::atexit([] { Uses::of_process().end(); }));
  return loaded.emplace(path, std::move(made)).first->second.get();
}

Result<Pkcs11Module::Token> Pkcs11Module::find_token(const Pkcs11Uri& uri) const {
  const auto failed = [&](const std::string& what) {
    return fail(ErrorCode::invalid_argument, "the key " + uri.shown + ": " + what);
  };
  std::vector<CK_SLOT_ID> slots;
  CK_ULONG count = 0;
  CK_RV error = functions_->C_GetSlotList(CK_TRUE, nullptr, &count);
  if (error == CKR_CRYPTOKI_NOT_INITIALIZED && initialize() == CKR_OK) {
    error = functions_->C_GetSlotList(CK_TRUE, nullptr, &count);
  }
  // Tokens may appear between the calls.
  if (error == CKR_OK) {
    count = std::min(count + 16, slots_max);
    slots.resize(count);
    error = functions_->C_GetSlotList(CK_TRUE, slots.data(), &count);
  }
  if (error != CKR_OK) {
    return failed("the module " + path_ + " does not list its tokens: " + pkcs11_text(error) +
                  ": see the documentation of the module");
  }
  slots.resize(count);
  std::vector<Token> found;
  std::string present;
  for (const CK_SLOT_ID slot : slots) {
    CK_TOKEN_INFO info{};
    if (functions_->C_GetTokenInfo(slot, &info) != CKR_OK || (info.flags & CKF_TOKEN_INITIALIZED) == 0) continue;
    const std::string label = unpadded(info.label, sizeof info.label);
    present += (present.empty() ? "" : ", ") + in_quotes(label);
    if (matches(uri.token, label) && matches(uri.serial, unpadded(info.serialNumber, sizeof info.serialNumber)) &&
        matches(uri.manufacturer, unpadded(info.manufacturerID, sizeof info.manufacturerID)) &&
        matches(uri.model, unpadded(info.model, sizeof info.model)) && (!uri.slot || *uri.slot == slot)) {
      found.push_back({slot, info.flags, label});
    }
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return failed("the module " + path_ + " has no such token. Present are: " + (present.empty() ? "none" : present) +
                  ": insert the token, or correct the URI of the key");
  }
  return failed("the module " + path_ + " has " + std::to_string(found.size()) +
                " such tokens: add token, serial or slot-id to the URI of the key");
}

}  // namespace hawser::security::tls
