#include "protocol/http/json/function_json.h"

#include "base/try.h"
#include "rpc/server/describer.h"

namespace hawser::protocol::http {

Result<Buffer> FunctionJson::arguments_from_json(std::string_view json) const {
  TRY(std::string&& bytes, protocol::http::arguments_from_json(types_, types_.description().arguments, json));
  return Buffer::copy_of(bytes);
}

Result<std::string> FunctionJson::result_to_json(Bytes body, Bytes payload) const {
  const auto& result = types_.description().result;
  if (!result) return std::string("null");
  Result<std::string> json = value_to_json(types_, *result, body, payload);
  if (!json && json.error().code == ErrorCode::protocol_error) json.error().code = ErrorCode::internal;
  return json;
}

std::shared_ptr<const detail::JsonTranscoder> FunctionJsons::find(const detail::ServedMethod& method) {
  if (method.describe == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const FunctionJson>& known = known_[method.describe];
  if (known == nullptr) {
    Result<ValueTypes> types = ValueTypes::check(rpc::Describer(method).take());
    if (!types) return nullptr;
    known = std::make_shared<const FunctionJson>(std::move(*types));
  }
  return known;
}

}  // namespace hawser::protocol::http
