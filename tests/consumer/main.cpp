// What a user's first program outside the tree needs: headers found, library linked, nothing else named.
#include <hawser/error.h>

#include <cstdio>

int main() {
  const std::string_view name = hawser::to_string(hawser::ErrorCode::not_sent);
  std::printf("hawser says %.*s\n", static_cast<int>(name.size()), name.data());
  return name == "not_sent" ? 0 : 1;
}
