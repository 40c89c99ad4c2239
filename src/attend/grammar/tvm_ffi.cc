#include "attend/grammar/tvm_ffi.h"

#include <dlfcn.h>

#include <array>
#include <utility>
#include <vector>

#include "attend/base/error.h"

namespace attend::tvm_ffi {
namespace {

struct Object {  // header of every object
  uint64_t num_references;
  int32_t type_index;
  uint32_t padding;
  void (*deleter)(void*, int);
};
struct ErrorContent {
  Bytes kind, message;
};
struct MethodInfo {
  Bytes name, doc, metadata;
  int64_t flags;
  Any method;
};
struct TypeInfo {
  int32_t type_index, depth;
  Bytes key;
  const TypeInfo** ancestors;
  uint64_t key_hash;
  int32_t num_fields, num_methods;
  const void* fields;
  const MethodInfo* methods;
  const void* metadata;
};
static_assert(sizeof(Any) == 16 && sizeof(Object) == 24);

Bytes to_bytes(std::string_view text) { return {text.data(), text.size()}; }
std::string_view to_view(const Bytes& bytes) { return {bytes.data, bytes.size}; }

// Returns the content after the header of an object.
template <class Content>
const Content& object_content(const void* object) {
  return *reinterpret_cast<const Content*>(static_cast<const char*>(object) + sizeof(Object));
}

// Never unloads the library, since its registrations stay valid for the process.
void* open_library(const std::filesystem::path& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  if (library == nullptr) fail(ErrorCode::kNotFound, dlerror());
  return library;
}

template <class Function>
void find_symbol(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) fail(ErrorCode::kUnsupported, "tvm-ffi has no ", name);
}

}  // namespace

Value Value::tensor(void* dl_tensor) {
  Value value;
  value.any_.type_index = kTensorPointer;
  value.any_.pointer = dl_tensor;
  return value;
}

Value::Value(std::shared_ptr<const Library> library, Any any) : library_(std::move(library)), any_(any) {}

Value::~Value() {
  if (any_.type_index >= kFirstObject && any_.pointer != nullptr) library_->release(any_.pointer);
}

Value::Value(const Value& other) : library_(other.library_), any_(other.any_) {
  if (any_.type_index >= kFirstObject && any_.pointer != nullptr) library_->retain(any_.pointer);
}

Value::Value(Value&& other) noexcept
    : library_(std::move(other.library_)), any_(std::exchange(other.any_, Any())) {}

Value& Value::operator=(Value other) noexcept {
  std::swap(library_, other.library_);
  std::swap(any_, other.any_);
  return *this;
}

std::string Value::text() const {
  if (any_.type_index == kSmallText) return {any_.small_text, any_.small_length};
  if (any_.type_index != kText) return {};
  return std::string(to_view(object_content<Bytes>(any_.pointer)));
}

std::shared_ptr<const Library> Library::load(const std::filesystem::path& tvm_ffi,
                                             const std::filesystem::path& classes) {
  const std::shared_ptr<Library> library(new Library);
  void* const handle = open_library(tvm_ffi);
  Functions& functions = library->functions_;
  find_symbol(handle, "TVMFFIGetVersion", functions.version);
  uint32_t version[3] = {};
  functions.version(version);
  // The layout of its structs is not stable before 1.0.
  if (version[0] != 0 || version[1] != 1 || version[2] < 15 || version[2] > 16)
    fail(ErrorCode::kUnsupported, tvm_ffi.string(), ": tvm-ffi ", version[0], ".", version[1], ".",
         version[2], "; expected apache-tvm-ffi 0.1.15 (0.1.15.post2 reports 0.1.16)");
  find_symbol(handle, "TVMFFIObjectIncRef", functions.retain);
  find_symbol(handle, "TVMFFIObjectDecRef", functions.release);
  find_symbol(handle, "TVMFFITypeKeyToIndex", functions.type_index);
  find_symbol(handle, "TVMFFIGetTypeInfo", functions.type_info);
  find_symbol(handle, "TVMFFIFunctionGetGlobal", functions.global_function);
  find_symbol(handle, "TVMFFIFunctionCall", functions.call);
  find_symbol(handle, "TVMFFIErrorMoveFromRaised", functions.take_error);
  find_symbol(handle, "TVMFFIStringFromByteArray", functions.make_text);
  find_symbol(handle, "TVMFFIBytesFromByteArray", functions.make_bytes);
  const Bytes array = to_bytes("ffi.Array");
  if (functions.global_function(&array, &library->make_array_.function) != 0 ||
      library->make_array_.function == nullptr)
    fail(ErrorCode::kUnsupported, tvm_ffi.string(), ": has no ffi.Array");
  open_library(classes);
  return library;
}

Library::Method Library::method(const std::string& type, std::string_view name) const {
  const Bytes key = to_bytes(type);
  int32_t index = 0;
  if (functions_.type_index(&key, &index) != 0) fail(ErrorCode::kUnsupported, raised_error());
  const auto& info = *static_cast<const TypeInfo*>(functions_.type_info(index));
  for (int32_t i = 0; i < info.num_methods; ++i)
    if (to_view(info.methods[i].name) == name) return {info.methods[i].method.pointer};
  fail(ErrorCode::kUnsupported, type, " has no method ", name);
}

Value Library::bytes(std::string_view content) const {
  const Bytes bytes = to_bytes(content);
  Any any;
  if (functions_.make_bytes(&bytes, &any) != 0) fail(ErrorCode::kInternal, raised_error());
  return {shared_from_this(), any};
}

Value Library::text(std::string_view content) const {
  const Bytes bytes = to_bytes(content);
  Any any;
  if (functions_.make_text(&bytes, &any) != 0) fail(ErrorCode::kInternal, raised_error());
  return {shared_from_this(), any};
}

Value Library::array(std::span<const Value> items) const { return call(make_array_, items); }

Value Library::call(Method method, std::span<const Value> arguments) const {
  constexpr size_t kInlineArgs = 8;
  std::array<Any, kInlineArgs> inline_args;
  std::vector<Any> heap_args(arguments.size() > kInlineArgs ? arguments.size() : 0);
  Any* const anys = heap_args.empty() ? inline_args.data() : heap_args.data();
  for (size_t i = 0; i < arguments.size(); ++i) anys[i] = arguments[i].any();
  Any result;
  if (functions_.call(method.function, anys, static_cast<int32_t>(arguments.size()), &result) != 0)
    fail(ErrorCode::kInvalidArgument, raised_error());
  return {shared_from_this(), result};
}

std::string Library::raised_error() const {
  void* error = nullptr;
  functions_.take_error(&error);
  if (error == nullptr) return "tvm-ffi: a call failed without an error message";
  std::string message(to_view(object_content<ErrorContent>(error).message));
  functions_.release(error);
  return message;
}

}  // namespace attend::tvm_ffi
