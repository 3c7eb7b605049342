#pragma once

#include <string_view>

#include "hawser/hawser.h"
#include "tests/grpc/raw_service.h"

// The methods of raw_service.h for clients of gRPC, and one that no server has.
namespace hawser {

namespace remote {

using testing_tools::Raw;
Result<Raw> echo(Raw);
Result<Raw> sleep(Raw);
Result<Raw> running(Raw);
Result<Raw> fail(Raw);
Result<Raw> nothing(Raw);
Result<Raw> succeed_at(Raw);
Task<Result<void>> count(Raw, Writer<Raw>);
Task<Result<Raw>> sum(Reader<Raw>);
Task<Result<Raw>> hold(Reader<Raw>);
Task<Result<void>> converse(Reader<Raw>, Writer<Raw>);

}  // namespace remote

template <>
inline constexpr std::string_view method_name_override<&remote::echo> = "test.Raw/Echo";
template <>
inline constexpr std::string_view method_name_override<&remote::sleep> = "test.Raw/Sleep";
template <>
inline constexpr std::string_view method_name_override<&remote::running> = "test.Raw/Running";
template <>
inline constexpr std::string_view method_name_override<&remote::fail> = "test.Raw/Fail";
template <>
inline constexpr std::string_view method_name_override<&remote::nothing> = "test.Raw/Nothing";
template <>
inline constexpr std::string_view method_name_override<&remote::succeed_at> = "test.Raw/SucceedAt";
template <>
inline constexpr std::string_view method_name_override<&remote::count> = "test.Raw/Count";
template <>
inline constexpr std::string_view method_name_override<&remote::sum> = "test.Raw/Sum";
template <>
inline constexpr std::string_view method_name_override<&remote::hold> = "test.Raw/Hold";
template <>
inline constexpr std::string_view method_name_override<&remote::converse> = "test.Raw/Converse";

}  // namespace hawser
