#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <climits>
#include <unordered_set>

#include "hawser/protobuf.h"

namespace hawser::pb {

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageLite;

// Memory of an unknown group, which takes two bytes on the wire: an entry of UnknownFieldSet, whose vector may have
// twice the room, and the set within the group.
constexpr std::size_t unknown_factor = (2 * 16 + 24 + codec::allocation_overhead_bytes) / 2;
// Memory of a repeated element in addition to its object: a pointer in an array that may have twice the room, and an
// allocation.
constexpr std::size_t element_overhead_bytes = 2 * sizeof(void*) + codec::allocation_overhead_bytes;
// Bytes that are decoded at once without a look at the memory they take.
constexpr std::size_t unchecked_bytes = std::size_t{64} << 10;
// A message that cannot take more memory than this is charged with the upper bound. Measuring the memory of a small
// message takes half as long as decoding it.
constexpr std::size_t unmeasured_bytes = std::size_t{32} << 10;

// Adds the message types that a message of type `type` can contain.
void collect(const Descriptor* type, std::unordered_set<const Descriptor*>& seen, bool& repeats) {
  if (!seen.insert(type).second) return;
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* const field = type->field(i);
    if (field->is_repeated()) repeats = true;
    if (field->message_type() != nullptr) collect(field->message_type(), seen, repeats);
  }
  if (type->extension_range_count() != 0) repeats = true;
}

bool is_flat(const Message& instance) {
  std::unordered_set<const Descriptor*> types;
  bool repeats = false;
  collect(instance.GetDescriptor(), types, repeats);
  return !repeats && types.size() == 1;
}

std::size_t memory_factor_of(const Message& instance) {
  std::unordered_set<const Descriptor*> types;
  bool repeats = false;
  collect(instance.GetDescriptor(), types, repeats);
  std::size_t object_bytes = sizeof(std::string);
  for (const Descriptor* type : types) {
    const Message* const prototype = google::protobuf::MessageFactory::generated_factory()->GetPrototype(type);
    if (prototype != nullptr) object_bytes = std::max(object_bytes, prototype->SpaceUsedLong());
  }
  // An element takes two bytes on the wire at least: its tag and its length.
  return std::max(unknown_factor, (object_bytes + element_overhead_bytes) / 2);
}

// Shows a message in parts. Before each part, the memory of the message so far is charged; parts are so short that they
// cannot take more memory than is left.
class MeasuredStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  MeasuredStream(codec::Decoder& decoder, Bytes bytes, const Message& message, const MessageFacts& facts) noexcept
      : decoder_(decoder), bytes_(bytes), message_(message), facts_(facts) {}

  bool Next(const void** data, int* size) override {
    if (position_ == bytes_.size() || refused_) return false;
    if (position_ >= check_at_ && !check()) return false;
    const std::size_t part = std::min({bytes_.size() - position_, check_at_ - position_, std::size_t{INT_MAX / 2}});
    *data = bytes_.data() + position_;
    *size = static_cast<int>(part);
    position_ += part;
    return true;
  }
  void BackUp(int count) override { position_ -= static_cast<std::size_t>(count); }
  bool Skip(int count) override {
    const std::size_t step = std::min(static_cast<std::size_t>(std::max(count, 0)), bytes_.size() - position_);
    position_ += step;
    return step == static_cast<std::size_t>(count);
  }
  std::int64_t ByteCount() const override { return static_cast<std::int64_t>(position_); }

  // Charges the memory that the message has taken so far. False: the limit is exceeded.
  bool check() {
    const std::size_t used = message_.SpaceUsedLong();
    if (used > charged_ && !decoder_.charge(used - charged_, facts_.name.c_str())) {
      refused_ = true;
      return false;
    }
    charged_ = std::max(charged_, used);
    check_at_ = position_ + std::max(decoder_.memory_left() / facts_.memory_factor, unchecked_bytes);
    return true;
  }
  bool refused() const noexcept { return refused_; }

 private:
  codec::Decoder& decoder_;
  const Bytes bytes_;
  const Message& message_;
  const MessageFacts& facts_;
  std::size_t position_ = 0;
  std::size_t check_at_ = unchecked_bytes;
  std::size_t charged_ = 0;
  bool refused_ = false;
};

bool parse(MessageLite& message, Bytes bytes, std::size_t depth_max) {
  const int size = static_cast<int>(bytes.size());
  const auto depth = static_cast<int>(std::min<std::size_t>(depth_max, INT_MAX));
  if (depth == google::protobuf::io::CodedInputStream::GetDefaultRecursionLimit()) [[likely]] {
    return message.ParsePartialFromArray(bytes.data(), size);
  }
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const std::uint8_t*>(bytes.data()), size);
  input.SetRecursionLimit(depth);
  return message.ParsePartialFromCodedStream(&input) && input.ConsumedEntireMessage();
}

bool parse(MessageLite& message, MeasuredStream& stream, std::size_t depth_max) {
  google::protobuf::io::CodedInputStream input(&stream);
  input.SetTotalBytesLimit(INT_MAX);
  input.SetRecursionLimit(static_cast<int>(std::min<std::size_t>(depth_max, INT_MAX)));
  return message.ParsePartialFromCodedStream(&input) && input.ConsumedEntireMessage();
}

bool has_unknown_fields(const Message& message) { return !message.GetReflection()->GetUnknownFields(message).empty(); }

bool malformed(codec::Decoder& decoder, const MessageFacts& facts) {
  return decoder.fail(facts.name.c_str(),
                      "the bytes are not a message of this type, or it is nested more deeply than "
                      "message_depth_max of DecodeLimits");
}

bool complete(codec::Decoder& decoder, const MessageLite& message, const MessageFacts& facts) {
  if (message.IsInitialized()) [[likely]]
    return true;
  // Read by error() of the same decoder, before this thread decodes another message.
  static thread_local std::string reason;
  reason = "required fields are missing: " + message.InitializationErrorString();
  return decoder.fail(facts.name.c_str(), reason.c_str());
}

bool read_in_parts(codec::Decoder& decoder, Bytes bytes, Message& message, const MessageFacts& facts) {
  MeasuredStream stream(decoder, bytes, message, facts);
  if (!parse(message, stream, decoder.message_depth_max())) return !stream.refused() && malformed(decoder, facts);
  return stream.check();
}

bool read(codec::Decoder& decoder, Bytes bytes, Message& message, const MessageFacts& facts) {
  const char* const name = facts.name.c_str();
  if (bytes.size() > unchecked_bytes) return read_in_parts(decoder, bytes, message, facts);
  const std::size_t memory_max = bytes.size() * facts.memory_factor;
  const std::size_t unmeasured_max = facts.flat ? codec::DecodeBudget::free_bytes : unmeasured_bytes;
  const bool unmeasured = memory_max <= std::min(unmeasured_max, decoder.memory_left());
  if (unmeasured && !decoder.charge(memory_max, name)) return false;
  if (!parse(message, bytes, decoder.message_depth_max())) return malformed(decoder, facts);
  if (unmeasured) return true;
  // Strings grow in steps of two.
  if (facts.flat && !has_unknown_fields(message)) return decoder.charge(2 * bytes.size(), name);
  return decoder.charge(message.SpaceUsedLong(), name);
}

}  // namespace

MessageFacts::MessageFacts(const MessageLite& instance)
    : name(instance.GetTypeName()),
      too_large(name + " takes more than 2 GiB, the limit of Protocol Buffers"),
      incomplete("a required field of " + name + " is not set") {}
MessageFacts::MessageFacts(const Message& instance) : MessageFacts(static_cast<const MessageLite&>(instance)) {
  flat = is_flat(instance);
  memory_factor = memory_factor_of(instance);
}

bool read_message(codec::Decoder& decoder, Bytes bytes, Message& message, const MessageFacts& facts) {
  if (bytes.size() > INT_MAX) return decoder.fail_limit(facts.name.c_str(), "longer than 2 GiB");
  return read(decoder, bytes, message, facts) && complete(decoder, message, facts);
}

bool read_message(codec::Decoder& decoder, Bytes bytes, MessageLite& message, const MessageFacts& facts) {
  if (bytes.size() > INT_MAX) return decoder.fail_limit(facts.name.c_str(), "longer than 2 GiB");
  if (!decoder.charge(4 * bytes.size(), facts.name.c_str())) return false;
  if (!parse(message, bytes, decoder.message_depth_max())) return malformed(decoder, facts);
  return complete(decoder, message, facts);
}

}  // namespace hawser::pb
