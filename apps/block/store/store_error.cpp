#include "block/store/store_error.h"

#include <system_error>
#include <utility>

namespace hawser::block {

std::unexpected<Error> store_fail(int number, std::string text) {
  return std::unexpected(Error::application(number, std::move(text)));
}

std::unexpected<Error> system_fail(int number, const std::string& action) {
  return store_fail(number, "cannot " + action + ": " + std::generic_category().message(number));
}

}  // namespace hawser::block
