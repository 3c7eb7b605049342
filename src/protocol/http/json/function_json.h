#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "hawser/detail/json_transcoder.h"
#include "hawser/detail/served_method.h"
#include "protocol/http/json/value_json.h"

namespace hawser::protocol::http {

// JSON for a method whose values have the library's own encoding.
class FunctionJson final : public detail::JsonTranscoder {
 public:
  explicit FunctionJson(ValueTypes types) : types_(std::move(types)) {}
  Result<Buffer> arguments_from_json(std::string_view json) const override;
  // "null" for a method without a result.
  Result<std::string> result_to_json(Bytes body, Bytes payload) const override;
  std::string_view encoding() const noexcept override { return "hawser"; }

 private:
  const ValueTypes types_;
};

// The transcoders of plain functions, which are made when they are first needed. Thread-safe.
class FunctionJsons {
 public:
  // Null if the types of the method are not known.
  std::shared_ptr<const detail::JsonTranscoder> find(const detail::ServedMethod& method);

 private:
  std::mutex mutex_;
  // A function that describes a method determines its types, on whichever server the method is.
  std::unordered_map<detail::DescribeType, std::shared_ptr<const FunctionJson>> known_;
};

}  // namespace hawser::protocol::http
