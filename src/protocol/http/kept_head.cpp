#include "protocol/http/kept_head.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "protocol/http/field_values.h"
#include "wire/metadata.h"

namespace hawser::protocol::http {

KeptHead::KeptHead(const RequestHead& head, Bytes bytes) : bytes_(Buffer::copy_of(bytes)), head_(head) {
  const auto move = [&](std::string_view& view) {
    const std::string_view from = as_text(bytes);
    const bool inside = std::greater_equal<>()(view.data(), from.data()) &&
                        std::less_equal<>()(view.data() + view.size(), from.data() + from.size());
    if (inside) view = bytes_.text().substr(static_cast<std::size_t>(view.data() - from.data()), view.size());
  };
  for (std::string_view* const view : {&head_.method, &head_.target, &head_.path, &head_.query}) move(*view);
  for (Field& field : head_.fields) {
    move(field.name);
    move(field.value);
  }
}

void KeptHead::drop_coding() {
  std::erase_if(head_.fields,
                [](const Field& field) { return is_any_of(field.name, {"content-encoding", "content-length"}); });
}

void KeptHead::replace_metadata(MetadataView metadata) {
  std::vector<Field> entries;
  Field entry;
  for (wire::MetadataReader reader(metadata.bytes()); reader.next(entry.name, entry.value);) entries.push_back(entry);
  std::erase_if(head_.fields, [&](const Field& field) {
    return is_metadata(field.name) ||
           std::ranges::any_of(entries, [&](const Field& one) { return equal_without_case(one.name, field.name); });
  });
  head_.fields.insert(head_.fields.end(), entries.begin(), entries.end());
}

}  // namespace hawser::protocol::http
